"""What the measurements say: effects of interventions on probes, pathways, curves, surviving signal, baselines."""

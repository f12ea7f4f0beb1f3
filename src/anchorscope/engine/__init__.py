"""Forward passes: batches by length, the shared prefix, masks, capture, greedy decoding."""

"""Forward passes: batches by length, the shared prefix, masks and biases, capture, answers decoded or sampled."""

"""Who runs planned passes: a worker that owns a model, and an executor that hands shards to workers."""

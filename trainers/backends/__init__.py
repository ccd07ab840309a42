"""One way of training per file; each reads like its framework's own example."""

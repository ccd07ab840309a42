"""Sources of the screens' data: threads and processes that read, so that no key ever waits for a disk."""

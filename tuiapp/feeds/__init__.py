"""Where the screens' facts come from: threads and processes that read, so that no key ever waits for a disk."""

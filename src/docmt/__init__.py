"""docmt: document-level machine translation."""

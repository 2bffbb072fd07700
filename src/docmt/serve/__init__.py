"""The service of `docmt serve`: one engine for all requests, jobs that survive a restart, HTTP interfaces and a page."""

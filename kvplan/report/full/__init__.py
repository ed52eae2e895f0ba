"""The report of plans: what it says (`content`), and its forms: a page, Markdown, JSON."""

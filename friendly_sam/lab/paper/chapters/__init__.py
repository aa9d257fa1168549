"""The report of a reproduction: a chapter per experiment, as HTML and as Markdown."""

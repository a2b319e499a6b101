"""What the tests share: cases, layouts, options, backends and tables of calls."""

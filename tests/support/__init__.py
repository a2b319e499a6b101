"""What the tests share: cases, layouts, options, oracles, backends and tables of calls."""

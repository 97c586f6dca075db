"""What the user looks at after a run or an audit: page, figures and tables, from saved records."""

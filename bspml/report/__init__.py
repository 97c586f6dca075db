"""What a person looks at after a run: figures and tables, made from its records alone."""

"""One reader per data set; `bspml.data.catalogue` knows them by name."""

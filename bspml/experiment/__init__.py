"""One YAML file becomes one finished run folder; `bspml.experiment.run` is the way through."""

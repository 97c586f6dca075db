"""The names that a YAML file calls observers by."""

NAMES = ("tensorboard", "wandb", "mlflow", "json-lines")

"""From the embeddings of a batch to one number: losses, their miners and their reducers."""

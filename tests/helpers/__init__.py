"""What tests of several rooms share: drawn data, small trees of files, comparisons, places."""

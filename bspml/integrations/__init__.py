"""Sample weights, noise rate and audit in the trainers of other libraries, by adding one object."""

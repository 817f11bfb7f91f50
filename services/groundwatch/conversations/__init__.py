"""What libraries and serving systems log of a call of a model, read into one form."""

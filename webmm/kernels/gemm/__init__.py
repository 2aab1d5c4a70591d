"""Matrix products: the stages of the ladder."""

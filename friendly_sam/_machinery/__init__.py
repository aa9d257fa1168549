"""What the optimizer is made of and nobody else needs: private, may change at any time."""

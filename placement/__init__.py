"""Rules for the cards of a container: mgpud decides by them, and a cluster's scheduler before it."""

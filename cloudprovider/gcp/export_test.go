package gcp

// Shorten is the token in the name of a machine.
var Shorten = shorten

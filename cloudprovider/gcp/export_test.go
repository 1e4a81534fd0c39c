package gcp

// Shorten is the part of a name that tells the token.
var Shorten = shorten

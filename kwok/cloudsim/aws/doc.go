// Package aws is the front end of simulated AWS: it speaks the query protocols of
// EC2 and Auto Scaling and the JSON of the price list, for the calls that grow and
// shrink node groups, on one address. Which service a call is for follows from its
// version or target, as real clients send it.
//
// An unknown call or parameter gets the cloud's own error: success would be a lie.
// Credentials are not checked.
package aws

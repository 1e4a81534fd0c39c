// Package brownouts plays days on which the clouds are unwell, in virtual time: the provisioner with the real adapters and the clouds'
// own SDKs, against the simulated AWS and Google Cloud, in one process without a network, with groups of every launch method and of Spot.
// Calls fail, hang, are throttled or denied, credentials expire, and zones are away, in random windows of a seed; gangs come all day. No
// group may need a person except for credentials that were refused, no machine may be left over, every gang starts within an hour after
// the last window, and the checker of the promises sees every write.
//
//	go test ./test/brownouts -run TestDay -seed 7 -v
package brownouts

// Package brownouts plays days on which the clouds are unwell, in virtual time: the provisioner with the real adapters and the clouds'
// own SDKs, against the simulated AWS and Google Cloud, in one process without a network. Calls fail, hang, are throttled or denied, and
// zones are away, in random windows of a seed; gangs come all day. No group may need a person, no machine may be left over, and every
// gang starts within an hour after the last window.
//
//	go test ./test/brownouts -run TestDay -seed 7 -v
package brownouts

package gcp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Names that Muster gives say which launch a machine belongs to:
//
//	muster-<token>-<hash of the NodeGroup>-<place>   a machine
//	muster-<token>-<hash of the NodeGroup>-all       a resize request for all of them
//
// The cloud makes no two instances of one name in a zone, nor two resize requests in
// a group, so a call that is repeated makes nothing twice, however late it comes.
const (
	namePrefix = "muster-"
	allPlaces  = "all"
)

var validName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// launchPrefix is what all names of a launch begin with.
func launchPrefix(token, group string) string {
	return namePrefix + token + "-" + shortHash(group) + "-"
}

// machineNames of a launch. A token that makes no name of the cloud's is refused.
func machineNames(req cloudprovider.LaunchRequest) ([]string, error) {
	prefix := launchPrefix(req.Token, req.Group.Name)
	out := make([]string, req.Count)
	for i := range out {
		out[i] = prefix + strconv.Itoa(i)
	}
	if last := out[len(out)-1]; !validName.MatchString(last) {
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "InvalidToken",
			Message: fmt.Sprintf("the token %q would name machines %q: the cloud takes lower-case letters, digits and hyphens, 63 at most",
				req.Token, last)}
	}
	return out, nil
}

func requestName(token, group string) string { return launchPrefix(token, group) + allPlaces }

// tokenOf is the token of the launch that made what has this name; empty where
// Muster did not.
func tokenOf(name string) string {
	rest, ours := strings.CutPrefix(name, namePrefix)
	place := strings.LastIndexByte(rest, '-')
	if !ours || place < 0 {
		return ""
	}
	if p := rest[place+1:]; p != allPlaces && strings.Trim(p, "0123456789") != "" {
		return ""
	}
	hash := strings.LastIndexByte(rest[:place], '-')
	if hash < 1 || place-hash-1 != hashLength {
		return ""
	}
	return rest[:hash]
}

func isRequestName(name string) bool {
	return tokenOf(name) != "" && strings.HasSuffix(name, "-"+allPlaces)
}

const hashLength = 5

// shortHash tells groups of one launch apart.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:hashLength]
}

// requestID is the idempotency token of a call: a UUID that follows from what the
// call is for.
func requestID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return uuid([16]byte(sum[:16]))
}

// freshID is the idempotency token of a call that may be made again on purpose: one
// that takes back must not be answered with what came of the last one.
func freshID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return uuid(b)
}

// uuid of version 8: made up by the caller.
func uuid(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Labels that Muster puts on the machines that it makes itself. The cloud's keys
// take neither dots nor slashes.
const (
	labelCluster = "muster-dev-cluster"
	labelLaunch  = "muster-dev-launch"
	labelRequest = "muster-dev-request"
	labelGroup   = "muster-dev-node-group"
	// labelManager is the managed instance group whose template and limit hold.
	labelManager = "muster-dev-instance-group"
)

// labelValue is s as the value of a label. What does not fit gets a hash.
func labelValue(s string) string {
	out := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	if out == s && len(out) <= 63 {
		return out
	}
	const most = 63 - 1 - hashLength
	return out[:min(len(out), most)] + "-" + shortHash(s)
}

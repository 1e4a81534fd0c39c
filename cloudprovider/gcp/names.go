package gcp

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Names that Muster gives say which launch a machine belongs to, and of which cluster:
//
//	muster-<token>-<hash of the cluster><hash of the NodeGroup>-<place>   a machine
//	muster-<token>-<hash of the cluster><hash of the NodeGroup>-all       a resize request for all of them
//	muster-<hash of the cluster>-<hash of the token and the zone>         a compact placement policy
//
// The cloud makes no two instances of one name in a zone, nor two resize requests in
// a group, so a call that is repeated makes nothing twice, however late it comes.
const (
	namePrefix = "muster-"
	allPlaces  = "all"

	clusterHash = 6
	groupHash   = 4
	policyHash  = 20
)

var validName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// names are those that the Muster of one cluster gives.
type names struct {
	// cluster is the hash of its UID.
	cluster string
}

// prefix is what all names of a launch begin with.
func (n names) prefix(token, group string) string {
	return namePrefix + token + "-" + n.cluster + hash(group, groupHash) + "-"
}

// machines of a launch. A token that makes no name of the cloud's is refused.
func (n names) machines(req cloudprovider.LaunchRequest) ([]string, error) {
	prefix := n.prefix(req.Token, req.Group.Name)
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

func (n names) request(token, group string) string { return n.prefix(token, group) + allPlaces }

// policyPrefix is what the names of all placement policies begin with, which take no labels.
func (n names) policyPrefix() string { return namePrefix + n.cluster + "-" }

// policy of a launch. Parts of it in several groups of a zone share one, since the machines of a policy are in one zone.
func (n names) policy(token, zone string) string {
	return n.policyPrefix() + hash(token+"\x00"+zone, policyHash)
}

// token of the launch that made what has this name; empty where this cluster's Muster did
// not.
func (n names) token(name string) string {
	token, cluster := parseName(name)
	if cluster != n.cluster {
		return ""
	}
	return token
}

// foreign reports whether the Muster of another cluster gave the name.
func (n names) foreign(name string) bool {
	_, cluster := parseName(name)
	return cluster != "" && cluster != n.cluster
}

func (n names) isRequest(name string) bool {
	return n.token(name) != "" && strings.HasSuffix(name, "-"+allPlaces)
}

// parseName returns the token and the hash of the cluster in a name; empty where no Muster
// gave it.
func parseName(name string) (token, cluster string) {
	rest, ours := strings.CutPrefix(name, namePrefix)
	place := strings.LastIndexByte(rest, '-')
	if !ours || place < 0 {
		return "", ""
	}
	if p := rest[place+1:]; p != allPlaces && strings.Trim(p, "0123456789") != "" {
		return "", ""
	}
	at := strings.LastIndexByte(rest[:place], '-')
	if at < 1 || place-at-1 != clusterHash+groupHash {
		return "", ""
	}
	return rest[:at], rest[at+1 : at+1+clusterHash]
}

// hash of s, of that length.
func hash(s string, length int) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:length]
}

// Labels that Muster puts on the machines that it makes itself. The cloud's keys
// take neither dots nor slashes.
const (
	labelCluster = "muster-dev-cluster"
	// labelUID is the cluster's UID: clusters of the same name are told apart by it.
	labelUID     = "muster-dev-cluster-uid"
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
	const length = 5
	return out[:min(len(out), 63-1-length)] + "-" + hash(s, length)
}

package gcp

import (
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

// Names that Muster gives say which launch a machine belongs to, and of which cluster:
//
//	muster-<token>-<hash of the cluster><hash of the NodeGroup>-<place>   a machine
//	muster-<token>-<hash of the cluster><hash of the NodeGroup>-all       a resize request for all of them
//	muster-<hash of the cluster>-<hash of the token and the zone>         a compact placement policy
//
// The token is shortened, see shorten. Names identify a machine from its birth, while labels may be shown late.
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

func namesOf(clusterUID string) names { return names{cluster: hash(clusterUID, clusterHash)} }

// prefix is what all names of a launch begin with.
func (n names) prefix(token, group string) string {
	return namePrefix + shorten(token) + "-" + n.cluster + hash(group, groupHash) + "-"
}

// machines of a launch. A token that makes no name of the cloud's is refused.
func (n names) machines(req cloudprovider.LaunchRequest) ([]string, error) {
	prefix := n.prefix(req.Token, req.Group.Name)
	out := make([]string, req.Count)
	for i := range out {
		out[i] = prefix + strconv.Itoa(i)
	}
	if last := out[len(out)-1]; !validName.MatchString(last) || n.token(last) != req.Token {
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "InvalidToken",
			Message: fmt.Sprintf("the token %q would name machines %q: the cloud takes lower-case letters, digits and hyphens, 63 at most",
				req.Token, last)}
	}
	return out, nil
}

func (n names) request(token, group string) string { return n.prefix(token, group) + allPlaces }

// filter of lists of instances: those that the Muster of this cluster has named.
func (n names) filter() string { return n.like(".*", "[a-z2-7]*") }

// filterOf the machines of groups.
func (n names) filterOf(groups []*v1alpha1.NodeGroup) string {
	hashes := make([]string, len(groups))
	for i, g := range groups {
		hashes[i] = hash(g.Name, groupHash)
	}
	return n.like(".*", "("+strings.Join(hashes, "|")+")")
}

// filterFor the machines of the request behind a launch, whose UID its token begins with.
func (n names) filterFor(token string) string {
	if id := uid.FindString(token); id != "" {
		return n.like(shorten(id)+"-.*", "[a-z2-7]*")
	}
	return n.filter()
}

// like is a filter of machines by regular expressions for their token and the hash of their group.
func (n names) like(token, group string) string {
	return "name eq " + namePrefix + token + "-" + n.cluster + group + "-[0-9]*"
}

// policyPrefix is what the names of all placement policies begin with, which take no labels.
func (n names) policyPrefix() string { return namePrefix + n.cluster + "-" }

// policy of a launch. Parts of it in several groups of a zone share one, since the machines of a policy are in one zone.
func (n names) policy(token, zone string) string {
	return n.policyPrefix() + hash(token+"\x00"+zone, policyHash)
}

// token of the launch that made what has this name; empty where this cluster's Muster did
// not.
func (n names) token(name string) string {
	token, cluster, _ := parseName(name)
	if cluster != n.cluster {
		return ""
	}
	return token
}

// foreign reports whether the Muster of another cluster gave the name.
func (n names) foreign(name string) bool {
	_, cluster, _ := parseName(name)
	return cluster != "" && cluster != n.cluster
}

// isOf reports whether a name is that of a machine of a group.
func (n names) isOf(name, group string) bool {
	_, cluster, of := parseName(name)
	return cluster == n.cluster && of == hash(group, groupHash)
}

func (n names) isRequest(name string) bool {
	return n.token(name) != "" && strings.HasSuffix(name, "-"+allPlaces)
}

// parseName returns the token and the hashes of the cluster and the group in a name; empty where no Muster gave it.
func parseName(name string) (token, cluster, group string) {
	rest, ours := strings.CutPrefix(name, namePrefix)
	place := strings.LastIndexByte(rest, '-')
	if !ours || place < 0 {
		return "", "", ""
	}
	if p := rest[place+1:]; p != allPlaces && strings.Trim(p, "0123456789") != "" {
		return "", "", ""
	}
	at := strings.LastIndexByte(rest[:place], '-')
	if at < 1 || place-at-1 != clusterHash+groupHash {
		return "", "", ""
	}
	group = rest[at+1+clusterHash : place]
	return lengthen(rest[:at]), rest[at+1 : at+1+clusterHash], group
}

// uid is the UUID that the token of a launch begins with.
var uid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// unpadded letters and digits, five bits each. shortUID is the length of a UUID in them.
var unpadded = base32.StdEncoding.WithPadding(base32.NoPadding)

const shortUID = 26

// shorten writes the UUID of a token in 26 letters and digits instead of 36, so that the names of 1,000 machines keep within the
// cloud's 63 characters up to the ten-thousand-millionth attempt.
func shorten(token string) string {
	id := uid.FindString(token)
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if id == "" || err != nil {
		return token
	}
	return strings.ToLower(unpadded.EncodeToString(raw)) + token[len(id):]
}

// lengthen undoes shorten.
func lengthen(short string) string {
	if len(short) < shortUID || len(short) > shortUID && short[shortUID] != '-' {
		return short
	}
	raw, err := unpadded.DecodeString(strings.ToUpper(short[:shortUID]))
	if err != nil {
		return short
	}
	h := hex.EncodeToString(raw)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + short[shortUID:]
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

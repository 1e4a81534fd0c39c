package inventory

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Names that Muster gives say which launch a machine belongs to, and of which cluster:
//
//	muster-<token>-<hash of the cluster><hash of the NodeGroup>-<place>   a machine
//	muster-<token>-<hash of the cluster><hash of the NodeGroup>-all       a resize request for all of them
//	muster-<hash of the cluster>-<hash of the token and the zone>         a compact placement policy
//
// The token is shortened, see Shorten. Names identify a machine from its birth, while labels may be shown late.
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

// Names builds and parses the names that Muster gives in one cluster.
type Names struct {
	// cluster is the hash of its UID.
	cluster string
}

// NewNames returns the Names of the cluster with that UID.
func NewNames(clusterUID string) Names { return Names{cluster: hash(clusterUID, clusterHash)} }

// prefix is what all names of a launch begin with.
func (n Names) prefix(token, group string) string {
	return namePrefix + Shorten(token) + "-" + n.cluster + hash(group, groupHash) + "-"
}

// Machines of a launch. A token that makes no name of the cloud's is refused.
func (n Names) Machines(req cloudprovider.LaunchRequest) ([]string, error) {
	prefix := n.prefix(req.Token, req.Group.Name)
	out := make([]string, req.Count)
	for i := range out {
		out[i] = prefix + strconv.Itoa(i)
	}
	if last := out[len(out)-1]; !validName.MatchString(last) || n.Token(last) != req.Token {
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "InvalidToken",
			Message: fmt.Sprintf("the token %q would name machines %q: the cloud takes lower-case letters, digits and hyphens, 63 at most",
				req.Token, last)}
	}
	return out, nil
}

// Request of a launch: the name of its resize request.
func (n Names) Request(token, group string) string { return n.prefix(token, group) + allPlaces }

// Filter selects the instances of this cluster in lists, by their names.
func (n Names) Filter() string { return n.like(".*", "[a-z2-7]*") }

// FilterOf the machines of groups.
func (n Names) FilterOf(groups []*v1alpha1.NodeGroup) string {
	hashes := make([]string, len(groups))
	for i, g := range groups {
		hashes[i] = hash(g.Name, groupHash)
	}
	return n.like(".*", "("+strings.Join(hashes, "|")+")")
}

// FilterFor the machines of the request behind a launch, whose UID its token begins with.
func (n Names) FilterFor(token string) string {
	if id := uid.FindString(token); id != "" {
		return n.like(Shorten(id)+"-.*", "[a-z2-7]*")
	}
	return n.Filter()
}

// like is a filter of machines by regular expressions for their token and the hash of their group.
func (n Names) like(token, group string) string {
	return "name eq " + namePrefix + token + "-" + n.cluster + group + "-[0-9]*"
}

// PolicyPrefix is what the names of all placement policies begin with, which take no labels.
func (n Names) PolicyPrefix() string { return namePrefix + n.cluster + "-" }

// Policy of a launch. Parts of it in several groups of a zone share one, since the machines of a policy are in one zone.
func (n Names) Policy(token, zone string) string {
	return n.PolicyPrefix() + hash(token+"\x00"+zone, policyHash)
}

// Token of the launch that made what has this name; empty where this cluster's Muster did
// not.
func (n Names) Token(name string) string {
	token, cluster, _ := parseName(name)
	if cluster != n.cluster {
		return ""
	}
	return token
}

// Foreign reports whether the Muster of another cluster gave the name.
func (n Names) Foreign(name string) bool {
	_, cluster, _ := parseName(name)
	return cluster != "" && cluster != n.cluster
}

// IsOf reports whether a name is that of a machine of a group.
func (n Names) IsOf(name, group string) bool {
	_, cluster, of := parseName(name)
	return cluster == n.cluster && of == hash(group, groupHash)
}

// IsRequest reports whether a name is that of a resize request.
func (n Names) IsRequest(name string) bool {
	return n.Token(name) != "" && strings.HasSuffix(name, "-"+allPlaces)
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

// Shorten writes the UUID of a token in 26 letters and digits instead of 36, so that the names of 1,000 machines keep within the
// cloud's 63 characters up to the ten-thousand-millionth attempt.
func Shorten(token string) string {
	id := uid.FindString(token)
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if id == "" || err != nil {
		return token
	}
	return strings.ToLower(unpadded.EncodeToString(raw)) + token[len(id):]
}

// lengthen undoes Shorten.
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

// IsFor reports whether an instance was launched for the request of a launch. The label names the request; until lists show it, the token
// in the name of the instance does, which begins with the UID of the request.
func (n Names) IsFor(req cloudprovider.LaunchRequest, in *computepb.Instance) bool {
	if label := in.GetLabels()[labelRequest]; label != "" {
		return label == labelValue(req.Request)
	}
	id := uid.FindString(req.Token)
	return id != "" && id == uid.FindString(n.Token(in.GetName()))
}

package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	clusterUID = "6f1d9b1e-3c0e-4f53-9c38-6f6a7b1e0c11"
	requestUID = "2c9a7b54-1f0d-4a6b-8b7e-90d1c2e3f405"
)

func named1000(token, group string) cloudprovider.LaunchRequest {
	return cloudprovider.LaunchRequest{Token: token, Count: 1000, Group: &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: group}}}
}

// What Names gives it reads again, for this cluster alone.
func TestNames(t *testing.T) {
	ours, theirs := NewNames(clusterUID), NewNames(requestUID)
	for name, token := range map[string]string{
		"an attempt":                                requestUID + "-1",
		"a replacement":                             requestUID + "-1-r2",
		"the ten-thousand-millionth attempt":        requestUID + "-9999999999",
		"a token that begins with no UID":           "some-token",
		"a token that is as long as a UID is short": strings.Repeat("a", shortUID-1),
	} {
		t.Run(name, func(t *testing.T) {
			machines, err := ours.Machines(named1000(token, "a.h100"))
			if err != nil {
				t.Fatal(err)
			}
			last, request := machines[999], ours.Request(token, "a.h100")
			for _, given := range []string{machines[0], last, request} {
				if len(given) > 63 || !validName.MatchString(given) {
					t.Errorf("the cloud does not take the name %s", given)
				}
				if got := ours.Token(given); got != token {
					t.Errorf("the token in %s is %q, want %q", given, got, token)
				}
				if !ours.IsOf(given, "a.h100") || ours.IsOf(given, "b.h100") || ours.Foreign(given) {
					t.Errorf("%s is not read as one of group a.h100 of this cluster", given)
				}
				if theirs.Token(given) != "" || theirs.IsOf(given, "a.h100") || !theirs.Foreign(given) {
					t.Errorf("%s is not another cluster's to the Muster of that", given)
				}
			}
			if ours.IsRequest(last) || !ours.IsRequest(request) || theirs.IsRequest(request) {
				t.Errorf("%s is taken for a machine, or %s for a resize request", request, last)
			}
		})
	}
}

func TestNamesRefuseTokens(t *testing.T) {
	for name, token := range map[string]string{
		"capital letters": "Token", "a dot": "a.b", "too long": strings.Repeat("a", 60), "what reads as a UID": strings.Repeat("a", shortUID),
	} {
		_, err := NewNames(clusterUID).Machines(named1000(token, "a.h100"))
		if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Config {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

// Names that people and other controllers give are of no Muster.
func TestNamesOfOthers(t *testing.T) {
	names := NewNames(clusterUID)
	good := "muster-some-token-" + names.cluster + "abcd-0"
	if names.Token(good) != "some-token" {
		t.Fatalf("%s is not read", good)
	}
	for _, name := range []string{
		"", "muster", "muster-", "muster-1", "gke-pool-1234", "x" + good, good + "x", "muster-some-token-0", "muster-" + names.cluster + "abcd-0",
		"muster-some-token-" + names.cluster + "-0", names.Policy("some-token", "us-central1-a"),
	} {
		if names.Token(name) != "" || names.Foreign(name) || names.IsRequest(name) || names.IsOf(name, "a.h100") {
			t.Errorf("%q is taken for one that a Muster has given", name)
		}
	}
}

func TestShorten(t *testing.T) {
	for token, want := range map[string]string{
		"00000000-0000-0000-0000-000000000000-1": strings.Repeat("a", shortUID) + "-1",
		"some-token":                             "some-token",
		strings.ToUpper(requestUID):              strings.ToUpper(requestUID),
		"":                                       "",
	} {
		if got := Shorten(token); got != want || lengthen(got) != token {
			t.Errorf("%q is shortened to %q and that is lengthened to %q, want %q", token, got, lengthen(got), want)
		}
	}
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for s, want := range map[string]string{
		"plain_1-a": "plain_1-a",
		"a.h100":    "a-h100-" + hash("a.h100", 5),
		"A":         "a-" + hash("A", 5),
		long:        long[:57] + "-" + hash(long, 5),
	} {
		got := labelValue(s)
		if diff := cmp.Diff(want, got); diff != "" || len(got) > 63 {
			t.Errorf("label of %q (-want +got):\n%s", s, diff)
		}
	}
}

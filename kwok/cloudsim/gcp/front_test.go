package gcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func config() gcp.Config {
	return gcp.Config{
		Project:      "lab",
		MachineTypes: []gcp.MachineType{{Name: "a3", VCPUs: 208, MemoryMB: 1024}},
		Templates:    []gcp.Template{{Name: "plain", MachineType: "a3"}, {Name: "flex", MachineType: "a3", ProvisioningModel: "FLEX_START"}},
		Groups: []gcp.Group{
			{Name: "owned", Zone: "z-a", Template: "plain", TargetSize: 2},
			{Name: "queued", Zone: "z-a", Template: "flex"},
		},
	}
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		break_ func(*gcp.Config)
		want   string
	}{
		"no project":              {func(c *gcp.Config) { c.Project = "" }, "project is missing"},
		"a type without a name":   {func(c *gcp.Config) { c.MachineTypes[0].Name = "" }, "machineTypes[0].name is missing"},
		"a type of nothing":       {func(c *gcp.Config) { c.MachineTypes[0].VCPUs = 0 }, "machineTypes[0]: vcpus is 0 and memoryMb 1024"},
		"a type twice":            {func(c *gcp.Config) { c.MachineTypes = append(c.MachineTypes, c.MachineTypes[0]) }, `machineTypes[1].name is "a3" once more`},
		"a template without name": {func(c *gcp.Config) { c.Templates[0].Name = "" }, "templates[0].name is missing"},
		"a template twice":        {func(c *gcp.Config) { c.Templates[1].Name = "plain" }, `templates[1].name is "plain" once more`},
		"a type that is none":     {func(c *gcp.Config) { c.Templates[0].MachineType = "a9" }, `templates[0].machineType is "a9"`},
		"a model that is none":    {func(c *gcp.Config) { c.Templates[0].ProvisioningModel = "Spot" }, `templates[0].provisioningModel is "Spot": it must be STANDARD, SPOT`},
		"a group without a name":  {func(c *gcp.Config) { c.Groups[0].Name = "" }, "groups[0].name is missing"},
		"a group without a place": {func(c *gcp.Config) { c.Groups[0].Zone = "" }, "groups[0]: zone is \"\" and region \"\""},
		"a region without zones":  {func(c *gcp.Config) { c.Groups[0].Zone, c.Groups[0].Region = "", "z" }, "groups[0].zones is missing"},
		"a group twice":           {func(c *gcp.Config) { c.Groups[1].Name = "owned" }, "groups[1] is the group z-a/owned once more"},
		"less than no machine":    {func(c *gcp.Config) { c.Groups[0].TargetSize = -1 }, "groups[0].targetSize is -1"},
		"a flexible type":         {func(c *gcp.Config) { c.Groups[0].MachineTypes = []string{"a9"} }, `groups[0].machineTypes[0] is "a9"`},
	} {
		c := config()
		tc.break_(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	c := config()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// wire speaks to a front end without any client library.
type wire struct {
	*testing.T
	url   string
	clock *clocktesting.FakeClock
}

func newWire(t *testing.T, c gcp.Config) *wire {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	world, err := cloudsim.New(cloudsim.Config{Pools: []cloudsim.Pool{{PoolKey: cloudsim.PoolKey{
		Cloud: v1alpha1.ProviderGCP, Type: "a3", Zone: "z-a", CapacityType: v1alpha1.OnDemand,
	}}}}, clock)
	if err != nil {
		t.Fatal(err)
	}
	front, err := gcp.New(c, world)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(world.Handler(front))
	t.Cleanup(server.Close)
	return &wire{t, server.URL, clock}
}

// call returns the status and what came of it, or the reason and the message of the error.
func (w *wire) call(method, path, body string) (status int, answer map[string]any, reason string) {
	w.Helper()
	r, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	raw, err := io.ReadAll(reply.Body)
	if err != nil {
		w.Fatal(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		w.Fatalf("%s: %v", raw, err)
	}
	if e, ok := answer["error"].(map[string]any); ok {
		first := e["errors"].([]any)[0].(map[string]any)
		reason = fmt.Sprintf("%v: %v", first["reason"], e["message"])
		if int(e["code"].(float64)) != reply.StatusCode {
			w.Errorf("the error says %v and the status is %d", e["code"], reply.StatusCode)
		}
	}
	return reply.StatusCode, answer, reason
}

const (
	root = "/compute/v1/projects/lab/"
	uuid = "11111111-1111-4111-8111-111111111111"
)

// TestPolicies: what a compact placement policy forbids, in the cloud's words.
func TestPolicies(t *testing.T) {
	c := config()
	c.Templates[0].OnHostMaintenance = "TERMINATE"
	c.Templates = append(c.Templates, gcp.Template{Name: "migrated", MachineType: "a3"})
	w := newWire(t, c)
	bulk := func(template, name string) string {
		return `{"count":"1","sourceInstanceTemplate":"global/instanceTemplates/` + template + `","perInstanceProperties":{"` + name +
			`":{}},"instanceProperties":{"resourcePolicies":["gang"]}}`
	}
	const policies, gang = root + "regions/z/resourcePolicies", `{"name":"gang","groupPlacementPolicy":{"collocation":"COLLOCATED"}}`
	for _, step := range []struct {
		what, method, path, body string
		status                   int
		want                     string
	}{
		{"made", "POST", policies, gang, 200, ""},
		{"made twice", "POST", policies, gang, 409, "alreadyExists: The resource 'projects/lab/regions/z/resourcePolicies/gang' already exists"},
		{"of machines that are migrated", "POST", root + "zones/z-a/instances/bulkInsert", bulk("migrated", "a"), 400, "invalid: Invalid value for field"},
		{"of a machine", "POST", root + "zones/z-a/instances/bulkInsert", bulk("plain", "a"), 200, ""},
		{"in another zone", "POST", root + "zones/z-b/instances/bulkInsert", bulk("plain", "b"), 400, "invalid: Invalid value for field"},
		{"deleted in use", "DELETE", policies + "/gang", "", 400, "resourceInUseByAnotherResource: The resource_policy resource"},
		{"the machine deleted", "DELETE", root + "zones/z-a/instances/a", "", 200, ""},
		{"deleted", "DELETE", policies + "/gang", "", 200, ""},
	} {
		if status, _, reason := w.call(step.method, step.path, step.body); status != step.status || !strings.HasPrefix(reason, step.want) {
			t.Errorf("%s: got %d %q, want %d %q", step.what, status, reason, step.status, step.want)
		}
	}
}

// TestRefusals: unsupported calls fail with the cloud's own error, and never succeed.
func TestRefusals(t *testing.T) {
	bulk := func(more string) string {
		return `{"count":"2","sourceInstanceTemplate":"global/instanceTemplates/plain","perInstanceProperties":{"a":{},"b":{}}` + more + `}`
	}
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"a call that is not known":         {"GET", "/compute/v1/projects/lab/global/weather", "", 404, "notFound: The requested URL"},
		"a method that is not known":       {"PATCH", root + "zones/z-a/instanceGroupManagers/owned", "", 404, "notFound: The requested URL"},
		"another project":                  {"GET", "/compute/v1/projects/other/aggregated/instances", "", 404, "notFound: The resource 'projects/other' was not found"},
		"a policy without a name":          {"POST", root + "regions/z/resourcePolicies", `{"groupPlacementPolicy":{"collocation":"COLLOCATED"}}`, 400, "invalid: Invalid value for field 'resource.name'"},
		"a policy that spreads":            {"POST", root + "regions/z/resourcePolicies", `{"name":"p","groupPlacementPolicy":{"availabilityDomainCount":2}}`, 400, "invalid: Invalid JSON payload"},
		"a policy that is not there":       {"DELETE", root + "regions/z/resourcePolicies/p", "", 404, "notFound: The resource 'projects/lab/regions/z/resourcePolicies/p' was not found"},
		"machines of such a policy":        {"POST", root + "zones/z-a/instances/bulkInsert", bulk(`,"instanceProperties":{"resourcePolicies":["p"]}`), 404, "notFound: The resource 'projects/lab/regions/z/resourcePolicies/p' was not found"},
		"machines of two policies":         {"POST", root + "zones/z-a/instances/bulkInsert", bulk(`,"instanceProperties":{"resourcePolicies":["p","q"]}`), 400, "invalid: Invalid value for field 'resource.instanceProperties.resourcePolicies': 'p,q'"},
		"blocks of no reservation":         {"GET", root + "zones/z-a/reservations/r/reservationBlocks", "", 404, "notFound: The resource 'projects/lab/zones/z-a/reservations/r' was not found"},
		"sub-blocks of no block":           {"GET", root + "zones/z-a/reservations/r/reservationBlocks/b/reservationSubBlocks", "", 404, "notFound: The resource 'projects/lab/zones/z-a/reservations/r/reservationBlocks/b' was not found"},
		"machines of no reservation":       {"POST", root + "zones/z-a/instances/bulkInsert", bulk(`,"instanceProperties":{"reservationAffinity":{"consumeReservationType":"SPECIFIC_RESERVATION","key":"compute.googleapis.com/reservation-name","values":["r"]}}`), 400, "invalid: Invalid value for field 'resource.instanceProperties.reservationAffinity': 'r'"},
		"a query that is not known":        {"GET", root + "aggregated/instances?colour=red", "", 400, `invalid: Invalid JSON payload received. Unknown name "colour"`},
		"a filter that is not known":       {"GET", root + "aggregated/instances?filter=colour%20eq%20x", "", 400, "invalid: Invalid value for field 'filter'"},
		"a page that is too large":         {"GET", root + "aggregated/instances?maxResults=501", "", 400, "invalid: Invalid value for field 'maxResults'"},
		"a page token of somebody's own":   {"GET", root + "aggregated/instances?pageToken=x", "", 400, "invalid: Invalid value for field 'pageToken'"},
		"a field that is not known":        {"POST", root + "zones/z-a/instances/bulkInsert", bulk(`,"colour":"red"`), 400, `invalid: Invalid JSON payload received. json: unknown field "colour"`},
		"a count that is none":             {"POST", root + "zones/z-a/instances/bulkInsert", `{"count":"0"}`, 400, "invalid: Invalid value for field 'resource.count'"},
		"a minimum beyond the count":       {"POST", root + "zones/z-a/instances/bulkInsert", bulk(`,"minCount":"3"`), 400, "invalid: Invalid value for field 'resource.minCount'"},
		"a template that is gone":          {"POST", root + "zones/z-a/instances/bulkInsert", `{"count":"1","sourceInstanceTemplate":"x"}`, 404, "notFound: The resource 'projects/lab/global/instanceTemplates/x'"},
		"names that do not suffice":        {"POST", root + "zones/z-a/instances/bulkInsert", `{"count":"1","sourceInstanceTemplate":"plain"}`, 400, "invalid: Invalid value for field 'resource.perInstanceProperties'"},
		"a name with capitals":             {"POST", root + "zones/z-a/instances/bulkInsert", `{"count":"1","sourceInstanceTemplate":"plain","perInstanceProperties":{"A":{}}}`, 400, "Must be a match of regex"},
		"a label with a dot":               {"POST", root + "zones/z-a/instances/bulkInsert", bulk(`,"instanceProperties":{"labels":{"muster.dev":"x"}}`), 400, "invalid: Invalid value for field 'resource.instanceProperties.labels'"},
		"a requestId that is no UUID":      {"POST", root + "zones/z-a/instances/bulkInsert?requestId=1", bulk(""), 400, "The request ID must be a valid UUID"},
		"a requestId of zeros":             {"POST", root + "zones/z-a/instances/bulkInsert?requestId=00000000-0000-0000-0000-000000000000", bulk(""), 400, "and not zero"},
		"a requestId of a late version":    {"POST", root + "zones/z-a/instances/bulkInsert?requestId=11111111-1111-8111-8111-111111111111", bulk(""), 400, "The request ID must be a valid UUID"},
		"an instance that is gone":         {"DELETE", root + "zones/z-a/instances/x", "", 404, "notFound: The resource 'projects/lab/zones/z-a/instances/x'"},
		"a group that is gone":             {"GET", root + "zones/z-a/instanceGroupManagers/x", "", 404, "notFound: "},
		"a group of another scope":         {"GET", root + "regions/z/instanceGroupManagers/owned", "", 404, "notFound: "},
		"an operation that is gone":        {"POST", root + "zones/z-a/operations/operation-9/wait", "", 404, "notFound: "},
		"an instance of no group":          {"POST", root + "zones/z-a/instanceGroupManagers/owned/deleteInstances", `{"instances":["zones/z-a/instances/x"]}`, 400, "not a member of the group"},
		"an instance that the group has":   {"POST", root + "zones/z-a/instanceGroupManagers/owned/createInstances", `{"instances":[{"name":"owned-0000"}]}`, 409, "alreadyExists: "},
		"a resize request of the standard": {"POST", root + "zones/z-a/instanceGroupManagers/owned/resizeRequests", `{"name":"r","instances":[{"name":"a"}]}`, 400, "only supported for the provisioning models"},
		"a resize request without an end":  {"POST", root + "zones/z-a/instanceGroupManagers/queued/resizeRequests", `{"name":"r","instances":[{"name":"a"}]}`, 400, "Must be between 10 minutes and 7 days"},
		"a resize request that is gone":    {"GET", root + "zones/z-a/instanceGroupManagers/queued/resizeRequests/r", "", 404, "notFound: "},
		"the catalog of another service":   {"GET", "/v1/services/0000/skus", "", 404, "notFound: "},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, reason := newWire(t, config()).call(tc.method, tc.path, tc.body)
			if status != tc.status || !strings.Contains(reason, tc.want) {
				t.Errorf("got %d %q, want %d %q", status, reason, tc.status, tc.want)
			}
		})
	}
}

// TestRequestID: the same ID is the same call, for an hour.
func TestRequestID(t *testing.T) {
	w := newWire(t, config())
	path := root + "zones/z-a/instances/bulkInsert?requestId=" + uuid
	body := `{"count":"1","sourceInstanceTemplate":"plain","perInstanceProperties":{"a":{}}}`
	_, first, _ := w.call("POST", path, body)
	_, second, _ := w.call("POST", path, " "+body)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second answer differs (-first +second):\n%s", diff)
	}
	if status, _, reason := w.call("POST", path, strings.Replace(body, `"a"`, `"b"`, 1)); status != 400 ||
		!strings.Contains(reason, "used for a different request") {
		t.Errorf("other parameters: got %d %q", status, reason)
	}
	w.clock.Step(2 * time.Hour)
	if status, _, reason := w.call("POST", path, body); status != 409 {
		t.Errorf("two hours later: got %d %q, want that the instance exists already", status, reason)
	}
}

// TestGroupsMakeInstances: a group keeps its target size when its VMs are deleted.
func TestGroupsMakeInstances(t *testing.T) {
	w := newWire(t, config())
	managed := func() (out []string) {
		_, answer, _ := w.call("POST", root+"zones/z-a/instanceGroupManagers/owned/listManagedInstances", "")
		for _, in := range answer["managedInstances"].([]any) {
			in := in.(map[string]any)
			out = append(out, fmt.Sprint(in["name"], " ", in["instanceStatus"]))
		}
		return out
	}
	w.clock.Step(time.Minute)
	if diff := cmp.Diff([]string{"owned-0000 RUNNING", "owned-0001 RUNNING"}, managed()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	w.call("DELETE", root+"zones/z-a/instances/owned-0001", "")
	if diff := cmp.Diff([]string{"owned-0000 RUNNING", "owned-0001 RUNNING"}, managed()); diff != "" {
		t.Errorf("after a VM was deleted (-want +got):\n%s", diff)
	}
	w.call("POST", root+"zones/z-a/instanceGroupManagers/owned/deleteInstances",
		`{"instances":["zones/z-a/instances/x","zones/z-a/instances/owned-0000"],"skipInstancesOnValidationError":true}`)
	if diff := cmp.Diff([]string{"owned-0001 RUNNING"}, managed()); diff != "" {
		t.Errorf("after the group deleted one (-want +got):\n%s", diff)
	}
}

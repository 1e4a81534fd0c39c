package aws

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	ec2Version         = "2016-11-15"
	autoScalingVersion = "2011-01-01"
	pricingTarget      = "AWSPriceListService."
)

// Front is an account in a region.
type Front struct {
	config Config
	world  *cloudsim.World

	mu sync.Mutex
	// answers to calls with a token, which the same call gets again.
	answers map[string]answer
	fleets  int
	// desired capacity of the groups, the tags that they were given, and the machines
	// that were taken out of them.
	desired map[string]int
	tags    map[string]map[string]string
	left    map[string]bool
	// leaving are the members that a lifecycle hook holds on their way out.
	leaving map[string]bool
	// retainedFrom is when the group keeps a leaving member for good.
	retainedFrom map[string]time.Time
	seen         map[string]bool
	// protected machines are not terminated beside their group.
	protected map[string]bool
	// created is when the groups were.
	created time.Time
	// revisions of launch templates after the first version, and the numbers of their defaults, by ID.
	revisions map[string][]Template
	defaults  map[string]int
	// placementGroups by their names, and how many there ever were.
	placementGroups map[string]*placementGroup
	placements      int
	// spotRole: the service-linked role of Spot exists.
	spotRole bool
}

var _ cloudsim.Front = (*Front)(nil)

type answer struct {
	asked [sha256.Size]byte
	reply []element
}

// New returns a Front. Its groups begin with the machines that they want.
func New(config Config, world *cloudsim.World) (*Front, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	f := &Front{
		config: config, world: world, answers: map[string]answer{}, desired: map[string]int{},
		tags: map[string]map[string]string{}, left: map[string]bool{}, leaving: map[string]bool{}, seen: map[string]bool{},
		created: world.Now(), revisions: map[string][]Template{}, defaults: map[string]int{},
		placementGroups: map[string]*placementGroup{}, retainedFrom: map[string]time.Time{}, protected: map[string]bool{},
	}
	for _, g := range config.Groups {
		f.desired[g.Name] = max(g.Min, g.Desired)
		f.tags[g.Name] = maps.Clone(g.Tags)
		if f.tags[g.Name] == nil {
			f.tags[g.Name] = map[string]string{}
		}
	}
	f.ownPlacementGroups()
	return f, f.buyBlocks()
}

// Cloud implements cloudsim.Front.
func (f *Front) Cloud() v1alpha1.Provider { return v1alpha1.ProviderAWS }

// Action implements cloudsim.Front.
func (f *Front) Action(r *http.Request) string {
	_, action := f.call(r)
	return action
}

// Throttled implements cloudsim.Front.
func (f *Front) Throttled() *cloudsim.Error {
	return &cloudsim.Error{Status: http.StatusServiceUnavailable, Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
}

// Seen are the permissions that calls have needed so far, in order.
func (f *Front) Seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.seen))
}

// call is the service and the action of a request.
func (f *Front) call(r *http.Request) (service, action string) {
	if target, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), pricingTarget); ok {
		return "pricing", target
	}
	if target, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), quotasTarget); ok {
		return "servicequotas", target
	}
	if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/clusters/") {
		return "eks", "DescribeNodegroup"
	}
	if err := r.ParseForm(); err != nil {
		return "", ""
	}
	switch r.PostForm.Get("Version") {
	case ec2Version:
		service = "ec2"
	case autoScalingVersion:
		service = "autoscaling"
	}
	return service, r.PostForm.Get("Action")
}

// handler makes the answer of a call, or panics with the *cloudsim.Error of it.
type handler func(*Front, *params) []element

var services = map[string]map[string]handler{
	"ec2": {
		"CancelCapacityReservation":           (*Front).cancelCapacityReservation,
		"CreateCapacityReservation":           (*Front).createCapacityReservation,
		"CreateFleet":                         (*Front).createFleet,
		"CreatePlacementGroup":                (*Front).createPlacementGroup,
		"CreateTags":                          (*Front).createTags,
		"DeletePlacementGroup":                (*Front).deletePlacementGroup,
		"DescribeCapacityReservationTopology": (*Front).describeCapacityReservationTopology,
		"DescribeCapacityReservations":        (*Front).describeCapacityReservations,
		"DescribeInstanceTypeOfferings":       (*Front).describeInstanceTypeOfferings,
		"DescribeInstanceTypes":               (*Front).describeInstanceTypes,
		"DescribeInstances":                   (*Front).describeInstances,
		"DescribeLaunchTemplateVersions":      (*Front).describeLaunchTemplateVersions,
		"DescribePlacementGroups":             (*Front).describePlacementGroups,
		"DescribeSpotPriceHistory":            (*Front).describeSpotPriceHistory,
		"DescribeSubnets":                     (*Front).describeSubnets,
		"GetSpotPlacementScores":              (*Front).getSpotPlacementScores,
		"RunInstances":                        (*Front).runInstances,
		"TerminateInstances":                  (*Front).terminateInstances,
	},
	"autoscaling": {
		"CreateOrUpdateTags":                  (*Front).createOrUpdateTags,
		"DeleteTags":                          (*Front).deleteTags,
		"DescribeAutoScalingGroups":           (*Front).describeAutoScalingGroups,
		"DescribeAutoScalingInstances":        (*Front).describeAutoScalingInstances,
		"DescribeInstanceRefreshes":           (*Front).describeInstanceRefreshes,
		"DescribePolicies":                    (*Front).describePolicies,
		"DescribeScheduledActions":            (*Front).describeScheduledActions,
		"LaunchInstances":                     (*Front).launchInstances,
		"TerminateInstanceInAutoScalingGroup": (*Front).terminateInAutoScalingGroup,
	},
}

// documents are the calls whose answers are JSON.
var documents = map[string]map[string]func(*Front, http.ResponseWriter, *http.Request){
	"eks":           {"DescribeNodegroup": (*Front).describeNodegroup},
	"pricing":       {"GetProducts": (*Front).getProducts},
	"servicequotas": {"ListServiceQuotas": (*Front).listServiceQuotas},
}

// ServeHTTP implements cloudsim.Front.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, action := f.call(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *cloudsim.Error:
			f.Refuse(w, r, e)
		default:
			panic(e)
		}
	}()
	f.admit(r, service, action)
	if serve := documents[service][action]; serve != nil {
		serve(f, w, r)
		return
	}
	f.replaceLost()
	reply := f.answer(service, action, newParams(r.PostForm))
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	if service == "ec2" {
		fmt.Fprint(w, el(action+`Response xmlns="http://ec2.amazonaws.com/doc/`+ec2Version+`/"`, el("requestId", requestID), reply))
		return
	}
	fmt.Fprint(w, el(action+`Response xmlns="http://autoscaling.amazonaws.com/doc/`+autoScalingVersion+`/"`,
		el(action+"Result", reply), el("ResponseMetadata", el("RequestId", requestID))))
}

const requestID = "00000000-0000-0000-0000-000000000000"

// admit returns an error for calls without permission, and for dry runs.
func (f *Front) admit(r *http.Request, service, action string) {
	if services[service][action] == nil && documents[service][action] == nil {
		panic(&cloudsim.Error{Status: http.StatusBadRequest, Code: "InvalidAction",
			Message: fmt.Sprintf("The action %s is not valid for this web service.", action)})
	}
	// The scope of a signature ends in region, service and a fixed word.
	if _, scope, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok && service != "pricing" {
		parts := strings.Split(strings.SplitN(scope, ",", 2)[0], "/")
		if len(parts) == 5 && parts[2] != f.config.Region {
			panic(&cloudsim.Error{Status: http.StatusUnauthorized, Code: "AuthFailure",
				Message: fmt.Sprintf("Credential should be scoped to a valid region, not '%s'.", parts[2])})
		}
	}
	permission := service + ":" + action
	if !r.PostForm.Has("DryRun") || r.PostForm.Get("DryRun") == "false" {
		f.seen[permission] = true
	}
	if slices.Contains(f.config.Denied, permission) {
		panic(denied(service, permission, "*"))
	}
	if documents[service] == nil {
		f.authorize(service, action, newParams(r.PostForm))
	}
	if r.PostForm.Get("DryRun") == "true" {
		panic(&cloudsim.Error{Status: http.StatusPreconditionFailed, Code: "DryRunOperation",
			Message: "Request would have succeeded, but DryRun flag is set."})
	}
}

// answer handles the call, once for each token.
func (f *Front) answer(service, action string, p *params) []element {
	p.text("DryRun")
	token := p.text("ClientToken")
	asked := sha256.Sum256([]byte(p.values.Encode()))
	key := action + " " + token
	if old, ok := f.answers[key]; ok && token != "" {
		if old.asked != asked {
			code := "IdempotentParameterMismatch"
			if service == "autoscaling" {
				code = "IdempotentParameterMismatchError"
			}
			panic(&cloudsim.Error{Status: http.StatusBadRequest, Code: code,
				Message: "The client token was used for a request with other parameters."})
		}
		return old.reply
	}
	reply := services[service][action](f, p)
	if token != "" {
		f.answers[key] = answer{asked, reply}
	}
	return reply
}

// checkRead returns an error for unknown parameters. It is called before the world is
// changed.
func (p *params) checkRead() {
	if key := p.unread(); key != "" {
		panic(&cloudsim.Error{Status: http.StatusBadRequest, Code: "UnknownParameter",
			Message: fmt.Sprintf("The parameter %s is not recognized", key)})
	}
}

// Refuse implements cloudsim.Front.
func (f *Front) Refuse(w http.ResponseWriter, r *http.Request, e *cloudsim.Error) {
	status := e.Status
	if status == 0 {
		status = http.StatusBadRequest
	}
	service, _ := f.call(r)
	switch service {
	case "pricing", "eks", "servicequotas":
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.Header().Set("X-Amzn-ErrorType", e.Code)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"__type":%q,"message":%q}`, e.Code, e.Message)
	case "autoscaling":
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		w.WriteHeader(status)
		fmt.Fprint(w, el("ErrorResponse", el("Error", el("Type", "Sender"), el("Code", e.Code), el("Message", e.Message)),
			el("RequestId", requestID)))
	default:
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		w.WriteHeader(status)
		fmt.Fprint(w, el("Response", el("Errors", el("Error", el("Code", e.Code), el("Message", e.Message))), el("RequestID", requestID)))
	}
}

// page cuts a list for an answer. next is empty on the last page.
func page[T any](f *Front, p *params, size string, list []T) (items []T, next string) {
	most := f.config.PageSize
	if asked := p.number(size); asked > 0 && (most == 0 || asked < most) {
		most = asked
	}
	if most == 0 {
		most = 1000
	}
	from := 0
	if token := p.text("NextToken"); token != "" {
		if _, err := fmt.Sscanf(token, "from-%d", &from); err != nil || from < 0 || from > len(list) {
			panic(invalid("NextToken %q is not one of this list", token))
		}
	}
	to := min(from+most, len(list))
	if to < len(list) {
		next = fmt.Sprintf("from-%d", to)
	}
	return list[from:to], next
}

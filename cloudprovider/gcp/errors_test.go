package gcp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestErrors sends each error of the cloud through the wire, and says which class it
// is and what a user reads.
func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		// status and code of a call that is refused; without a status it is the
		// operation that fails.
		status  int
		code    string
		message string

		want     v1alpha1.ErrorClass
		wantText string
	}{
		// Operations, resize requests and attempts of groups.
		{0, "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources.", v1alpha1.Stockout, "ZONE_RESOURCE_POOL_EXHAUSTED (Stockout): The zone does not have enough resources."},
		{0, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "Try us-central1-f.", v1alpha1.Stockout, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS (Stockout): Try us-central1-f."},
		{0, "RESOURCE_POOL_EXHAUSTED", "x", v1alpha1.Stockout, "RESOURCE_POOL_EXHAUSTED (Stockout): x"},
		{0, "INSUFFICIENT_CAPACITY", "x", v1alpha1.Stockout, "INSUFFICIENT_CAPACITY (Stockout): x"},
		{0, "QUOTA_EXCEEDED", "Quota 'NVIDIA_H100_GPUS' exceeded. Limit: 16.0 in region us-central1.", v1alpha1.Quota, "QUOTA_EXCEEDED (Quota): Quota 'NVIDIA_H100_GPUS' exceeded. Limit: 16.0 in region us-central1."},
		{0, "REGIONAL_QUOTA_FAILURE", "x", v1alpha1.Quota, "REGIONAL_QUOTA_FAILURE (Quota): x"},
		{0, "IP_SPACE_EXHAUSTED", "IP space of subnet is exhausted.", v1alpha1.Network, "IP_SPACE_EXHAUSTED (Network): IP space of subnet is exhausted."},
		{0, "PERMISSIONS_ERROR", "x", v1alpha1.Auth, "PERMISSIONS_ERROR (Auth): x"},
		{0, "SERVICE_ACCOUNT_ACCESS_DENIED", "x", v1alpha1.Auth, "SERVICE_ACCOUNT_ACCESS_DENIED (Auth): x"},
		{0, "CONDITION_NOT_MET", "Constraint constraints/compute.vmExternalIpAccess violated.", v1alpha1.Auth, "CONDITION_NOT_MET (Auth): Constraint constraints/compute.vmExternalIpAccess violated."},
		{0, "RATE_LIMIT_EXCEEDED", "x", v1alpha1.Throttle, "RATE_LIMIT_EXCEEDED (Throttle): x"},
		{0, "RESOURCE_OPERATION_RATE_EXCEEDED", "Too frequent operations from the source resource.", v1alpha1.Throttle, "RESOURCE_OPERATION_RATE_EXCEEDED (Throttle): Too frequent operations from the source resource."},
		{0, "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", "x", v1alpha1.Throttle, "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED (Throttle): x"},
		{0, "RESOURCE_NOT_READY", "x", v1alpha1.Throttle, "RESOURCE_NOT_READY (Throttle): x"},
		{0, "INTERNAL_ERROR", "x", v1alpha1.Outage, "INTERNAL_ERROR (Outage): x"},
		{0, "SERVICE_UNAVAILABLE", "x", v1alpha1.Outage, "SERVICE_UNAVAILABLE (Outage): x"},
		{0, "CANCELLED", "x", v1alpha1.Outage, "CANCELLED (Outage): x"},
		{0, "UNKNOWN", "x", v1alpha1.Outage, "UNKNOWN (Outage): x"},
		{0, "DATA_LOSS", "x", v1alpha1.Outage, "DATA_LOSS (Outage): x"},
		{0, "RESOURCE_EXHAUSTED", "x", v1alpha1.Throttle, "RESOURCE_EXHAUSTED (Throttle): x"},
		{0, "PERMISSION_DENIED", "x", v1alpha1.Auth, "PERMISSION_DENIED (Auth): x"},
		{0, "UNAUTHENTICATED", "x", v1alpha1.Auth, "UNAUTHENTICATED (Auth): x"},
		{0, "FAILED_PRECONDITION", "x", v1alpha1.Config, "FAILED_PRECONDITION (Config): x"},
		{0, "INVALID_ARGUMENT", "x", v1alpha1.Config, "INVALID_ARGUMENT (Config): x"},
		{0, "UNSUPPORTED_OPERATION", "Confidential VMs cannot do that.", v1alpha1.Config, "UNSUPPORTED_OPERATION (Config): Confidential VMs cannot do that."},
		{0, "SOMETHING_NEW", "x", v1alpha1.Config, "SOMETHING_NEW (Config): x"},
		{0, "INVALID_USAGE", "Specified reservations [r] do not exist.", v1alpha1.Config, "INVALID_USAGE (Config): Specified reservations [r] do not exist."},
		{0, "UNSUPPORTED_OPERATION", "No available resources in specified reservations.", v1alpha1.Stockout, "UNSUPPORTED_OPERATION (Stockout): No available resources in specified reservations."},
		{0, "UNSUPPORTED_OPERATION", "The reservation is fully consumed.", v1alpha1.Stockout, "UNSUPPORTED_OPERATION (Stockout): The reservation is fully consumed."},
		{0, "UNSUPPORTED_OPERATION", "The reservation is not READY.", v1alpha1.Config, "UNSUPPORTED_OPERATION (Config): The reservation is not READY."},
		// Calls.
		{503, "insufficientCapacity", "x", v1alpha1.Stockout, "insufficientCapacity (Stockout): x"},
		{403, "quotaExceeded", "x", v1alpha1.Quota, "quotaExceeded (Quota): x"},
		{403, "rateLimitExceeded", "x", v1alpha1.Throttle, "rateLimitExceeded (Throttle): x"},
		{403, "quotaExceeded", "Quota exceeded for quota metric 'Mutate requests' and limit 'Mutate requests per minute'.", v1alpha1.Throttle, "quotaExceeded (Throttle): "},
		{400, "resourceNotReady", "x", v1alpha1.Throttle, "resourceNotReady (Throttle): x"},
		{429, "tooMany", "x", v1alpha1.Throttle, "tooMany (Throttle): x"},
		{403, "forbidden", "Required 'compute.instances.create' permission for 'projects/lab'", v1alpha1.Auth, "forbidden (Auth): Required 'compute.instances.create' permission for 'projects/lab'"},
		{403, "somePolicy", "x", v1alpha1.Auth, "somePolicy (Auth): x"},
		{401, "authError", "Invalid Credentials", v1alpha1.Auth, "authError (Auth): Invalid Credentials"},
		{400, "invalid", "x", v1alpha1.Config, "invalid (Config): x"},
		{404, "notFound", "x", v1alpha1.Config, "notFound (Config): x"},
		{410, "gone", "x", v1alpha1.Config, "gone (Config): x"},
		{413, "uploadTooLarge", "x", v1alpha1.Config, "uploadTooLarge (Config): x"},
		{422, "somethingNew", "x", v1alpha1.Config, "somethingNew (Config): x"},
		{412, "conditionNotMet", "Constraint violated.", v1alpha1.Auth, "conditionNotMet (Auth): Constraint violated."},
		// These say nothing about the launch: it is called for again.
		{499, "cancelled", "x", "", "launching 3 machines in NodeGroup bulk.h100 by BulkInsert: "},
		{408, "timeout", "x", "", "launching 3 machines in NodeGroup bulk.h100 by BulkInsert: "},
		{503, "backendError", "x", "", "launching 3 machines in NodeGroup bulk.h100 by BulkInsert: "},
		{500, "internalError", "x", "", "launching 3 machines in NodeGroup bulk.h100 by BulkInsert: "},
	} {
		t.Run(tc.code+"/"+tc.message, func(t *testing.T) {
			world := cloudsim.Config{Pools: every(64)}
			if tc.status == 0 {
				world.Pools = every(64, v1alpha1.KwokFault{Type: v1alpha1.FaultLaunchError,
					Error: &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: tc.code, Message: tc.message}})
			} else {
				world.Calls = []cloudsim.CallFault{{
					Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused, Action: "instances.bulkInsert",
					Error: &cloudsim.Error{Status: tc.status, Code: tc.code, Message: tc.message},
				}}
			}
			l := newLab(t, world, simulated())
			_, err := l.provider().Launch(context.Background(), launchOf(l.nodeGroup("bulk"), 3))
			var got v1alpha1.ErrorClass
			if refusal := cloudprovider.Refusal(err); refusal != nil {
				got = refusal.Class
			}
			if got != tc.want || err == nil || !strings.HasPrefix(err.Error(), tc.wantText) {
				t.Errorf("got %q, %v\nwant %q, %s", got, err, tc.want, tc.wantText)
			}
			if n := l.world.Calls(v1alpha1.ProviderGCP)["instances.bulkInsert"]; n != 1 {
				t.Errorf("the call was made %d times: nobody but the controller tries again", n)
			}
			if tc.status != 0 || tc.want == v1alpha1.Config || tc.want == v1alpha1.Throttle {
				return
			}
			owned := launchOf(l.nodeGroup("owned"), 3)
			_, err = l.provider().Launch(context.Background(), owned)
			if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != tc.want || refusal.Message != tc.message {
				t.Errorf("by CreateInstances: got %v, want class %s", err, tc.want)
			}
		})
	}
}

// TestACancelledResizeRequestIsLost: another client has taken it out of the queue. No machine has failed to join, and no person has to
// correct the group.
func TestACancelledResizeRequestIsLost(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(0)}, simulated())
	req := launchOf(l.nodeGroup("flex"), 3)
	p := l.provider()
	waiting, err := p.Launch(t.Context(), req)
	if err == nil || cloudprovider.Refusal(err) != nil || len(waiting) != 1 || !waiting[0].Hold {
		t.Fatalf("got %v, %v: want a hold", waiting, err)
	}
	l.clock.Step(10 * time.Second)
	if err := l.provider().Terminate(t.Context(), req.Group.Name, []string{waiting[0].Name}); err != nil {
		t.Fatal(err)
	}
	l.clock.Step(10 * time.Second)
	_, err = p.Launch(t.Context(), req)
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Lost || refusal.Code != "CANCELLED" {
		t.Errorf("got %v: want the class Lost", err)
	}
}

// TestThrottledGroup: a group that was throttled while it made machines goes on by itself, so
// those that it has made are kept.
func TestThrottledGroup(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64, v1alpha1.KwokFault{Type: v1alpha1.FaultLaunchError,
		Until: &metav1.Duration{Duration: 20 * time.Second},
		Error: &v1alpha1.KwokError{Class: v1alpha1.Throttle, Code: "RESOURCE_OPERATION_RATE_EXCEEDED", Message: "x"}})}, simulated())
	machines, err := launch(t, l, l.provider(), launchOf(l.nodeGroup("owned"), 3))
	if err != nil || len(machines) != 3 {
		t.Errorf("got %v, %v: want 3 machines", machines, err)
	}
}

package feed

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
)

func TestARequestThatWasMadeAgainWhileAWatchWasBroken(t *testing.T) {
	m := model.New(testingclock.NewFakePassiveClock(time.Now()), transaction.KnownClasses)
	request := func(uid types.UID, version string) *provreq.ProvisioningRequest {
		return &provreq.ProvisioningRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: uid, ResourceVersion: version},
			Spec:       provreq.ProvisioningRequestSpec{ProvisioningClassName: transaction.ClassAtomicScaleUp},
		}
	}
	first, second := request("first", "1"), request("second", "2")
	h := handle(m)
	h.OnAdd(first, true)
	h.OnUpdate(first, second)
	if due := m.Due(nil); len(due) != 1 || due[0].UID != "second" {
		t.Errorf("%d requests are there, want the second alone", len(due))
	}
}

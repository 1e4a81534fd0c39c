package model

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// LaunchUnanswered records that a call of a request has failed with an unknown outcome.
func (m *Model) LaunchUnanswered(uid types.UID, call transaction.CallKey, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.unanswered[uid]
	if calls == nil {
		calls = map[transaction.CallKey]transaction.Unanswered{}
		m.unanswered[uid] = calls
	}
	u, known := calls[call]
	if !known {
		u.Since = m.clock.Now()
		maps.DeleteFunc(calls, func(k transaction.CallKey, _ transaction.Unanswered) bool { return k.Token != call.Token })
	}
	u.Message, u.Class = err.Error(), ""
	if cause := cloudprovider.CauseOf(err); cause != nil {
		u.Class = cause.Class
	}
	calls[call] = u
}

// LaunchAnswered records that the cloud has carried out a call of a request, or is about to.
func (m *Model) LaunchAnswered(uid types.UID, call transaction.CallKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unanswered[uid], call)
}

package loop

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/when"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/quota"
)

// refusedAgain is how long after a refusal the end of a temporary quota is written again: only an edit of the ClusterQueue can help.
const refusedAgain = time.Minute

// temporaryQuotas are those of one ClusterQueue.
type temporaryQuotas struct {
	object *kueue.ClusterQueue
	// underWay: the end of some is being written. After a failure, it is written again at retryAt.
	underWay bool
	retryAt  time.Time
}

// trackTemporary keeps a ClusterQueue as long as it has temporary quotas.
func (l *Loop) trackTemporary(cq *kueue.ClusterQueue) {
	switch have := l.temporary[cq.UID]; {
	case cq.Annotations[quota.TemporaryAnnotation] == "":
		delete(l.temporary, cq.UID)
	case have == nil:
		l.temporary[cq.UID] = &temporaryQuotas{object: cq}
	default:
		have.object = cq
	}
}

// expire ends the temporary quotas whose time has come or that were edited, and returns when the next one ends.
func (l *Loop) expire(now time.Time) (next time.Time) {
	for _, x := range l.temporary {
		if x.underWay {
			continue
		}
		if now.Before(x.retryAt) {
			next = when.Earliest(next, x.retryAt)
			continue
		}
		e := quota.Expire(x.object, now)
		if next = when.Earliest(next, e.Next); e.Patch == nil {
			continue
		}
		x.underWay = true
		object := x.object
		l.start(writes.Acting, "", func(ctx context.Context) writes.Done {
			written, err := l.writer.ExpireQuotas(ctx, object, &e)
			return func(now time.Time) {
				switch x.underWay = false; {
				case err == nil:
					l.set(written)
				case writes.IsStale(err):
					x.retryAt = now.Add(firstRetry)
				default:
					l.log.Error(err, "Ending a temporary quota failed, and is tried again", "name", client.ObjectKeyFromObject(object))
					x.retryAt = now.Add(refusedAgain)
				}
			}
		})
	}
	return next
}

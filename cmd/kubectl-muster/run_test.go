package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/jobs"
)

// TestQueueFor checks that a typo in the name of a queue is refused at once. A user without the
// right to read queues can still submit to one by its name.
func TestQueueFor(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "localqueues"}, "", nil)
	for name, tc := range map[string]struct {
		queues      []client.Object
		list        error
		named, want string
		err         string
	}{
		"the only one":             {queues: []client.Object{localQueue("main", "team")}, want: "main"},
		"one of two":               {queues: []client.Object{localQueue("main", "team"), localQueue("night", "team")}, named: "night", want: "night"},
		"none of two":              {queues: []client.Object{localQueue("main", "team"), localQueue("night", "team")}, err: "--queue is missing: use one of main, night"},
		"a typo":                   {queues: []client.Object{localQueue("main", "team")}, named: "mian", err: "namespace default has no LocalQueue mian: --queue is one of main"},
		"no queue at all":          {named: "main", err: "namespace default has no LocalQueue, without which no job of it can queue"},
		"no right to read queues":  {list: forbidden, named: "main", want: "main"},
		"no right and no name":     {list: forbidden, err: "--queue is missing, and the LocalQueues of namespace default cannot be read: " + forbidden.Error()},
		"no answer from a cluster": {list: errors.New("refused"), named: "main", err: "reading the LocalQueues of namespace default: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := view.NewScheme()
			if err != nil {
				t.Fatal(err)
			}
			kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.queues...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tc.list != nil {
						return tc.list
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			got, err := queueFor(t.Context(), kube, "default", tc.named)
			if said := errorText(err); got != tc.want || said != tc.err {
				t.Errorf("queue %q, error %q", got, said)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestLogsAreFollowedToTheEndOfAJob: lines of several pods begin with their names, a pod whose container has yet to start is tried again,
// one that cannot be read is named once, and the result is the job's.
func TestLogsAreFollowedToTheEndOfAJob(t *testing.T) {
	for name, tc := range map[string]struct {
		pods   []string
		reason string
		want   []string
		err    string
	}{
		"one pod": {pods: []string{"a"}, reason: kueue.WorkloadFinishedReasonSucceeded, want: []string{"\na says hello\n", "\na ends"}},
		"several, the last of which cannot be read": {pods: []string{"a", "b", "denied"}, reason: kueue.WorkloadFinishedReasonSucceeded,
			want: []string{"\n[a] a says hello\n", "\n[b] b says hello\n", "\n[b] b ends\n", "The log of pod denied cannot be read: forbidden\n"}},
		"a job that fails": {pods: []string{"a"}, reason: kueue.WorkloadFinishedReasonFailed, want: []string{"\na says hello\n"},
			err: "job/train has failed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			scheme, err := view.NewScheme()
			if err != nil {
				t.Fatal(err)
			}
			job := &batchv1.Job{ObjectMeta: meta("train")}
			job.UID = "train"
			w := running("train", "team", int32(len(tc.pods)), func(w *kueue.Workload) {
				w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "train", Controller: new(true)}}
			})
			objects := []client.Object{job, w}
			for _, name := range tc.pods {
				pod := &corev1.Pod{ObjectMeta: meta(name)}
				pod.UID, pod.Labels = types.UID(name), map[string]string{batchv1.ControllerUidLabel: "train", jobs.JobUIDLabel: "train"}
				pod.Status.Phase = corev1.PodRunning
				objects = append(objects, pod)
			}
			kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(w).Build()
			o := &options{clock: clock.RealClock{}}
			var text bytes.Buffer
			out := &lines{out: &text}
			tries, denials := map[string]int{}, 0
			l := &logs{out: out, followed: map[types.UID]bool{}, open: func(_ context.Context, pod *corev1.Pod) (io.ReadCloser, error) {
				switch tries[pod.Name]++; {
				case pod.Name == "denied":
					denials++
					return nil, errors.New("forbidden")
				case tries[pod.Name] == 1:
					return nil, apierrors.NewBadRequest("container is creating")
				case tries[pod.Name] > 2:
					t.Errorf("the log of %s is opened again", pod.Name)
				}
				return io.NopCloser(strings.NewReader(pod.Name + " says hello\n" + pod.Name + " ends")), nil
			}}
			time.AfterFunc(3*subjectPoll/2, func() {
				now := &kueue.Workload{}
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(w), now); err != nil {
					t.Error(err)
				}
				condition(now, kueue.WorkloadFinished, metav1.ConditionTrue, tc.reason, "over")
				if err := kube.Status().Update(t.Context(), now); err != nil {
					t.Error(err)
				}
			})
			err = o.untilEnded(t.Context(), out, &subject{kube: kube, object: job}, "job/train", l)
			if said := errorText(err); said != tc.err {
				t.Errorf("%s: it ends with %q, want %q", name, said, tc.err)
			}
			for _, want := range tc.want {
				if !strings.Contains("\n"+text.String(), want) {
					t.Errorf("%s: %q is missing in:\n%s", name, want, text.String())
				}
			}
			if denials > 1 {
				t.Errorf("%s: a log that cannot be read is tried %d times", name, denials)
			}
		})
	}
}

package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// BenchmarkAdmission admits 10,000 Workloads of one queue that has room for all, through an API server that takes 5 ms for each write and
// accepts any number of concurrent writes. Compare two versions by benchstat over -count=6.
//
// It reports admissions per second, and CPU time per admission. The CPU time is that of this process, with the encoding of the request
// and the decoding of the response, without HTTP.
func BenchmarkAdmission(b *testing.B) {
	const workloads = 10_000
	for b.Loop() {
		b.StopTimer()
		api := &slowAPI{objects: map[types.NamespacedName]*kueue.Workload{}, admitted: make(chan struct{}, workloads)}
		l := New(api, api, Config{})
		l.writer.Recorder = &events.FakeRecorder{}
		api.inbox = l.inbox
		for _, o := range queueOf("10000") {
			l.inbox.OnAdd(o, true)
		}
		for i := range workloads {
			w := workloadOf(fmt.Sprintf("job-%05d", i), "1")
			w.ResourceVersion, w.CreationTimestamp = "1", metav1.Now()
			api.objects[client.ObjectKeyFromObject(w)] = w
			l.inbox.OnAdd(w, true)
		}
		ctx, stop := context.WithCancel(context.Background())
		over := make(chan struct{})
		used := cpu(b)
		b.StartTimer()
		began := time.Now()
		go func() { defer close(over); l.Run(ctx) }()
		for range workloads {
			<-api.admitted
		}
		took := time.Since(began)
		b.StopTimer()
		b.ReportMetric(workloads/took.Seconds(), "admissions/s")
		b.ReportMetric(float64((cpu(b)-used).Microseconds())/workloads, "cpu-us/admission")
		stop()
		<-over
		b.StartTimer()
	}
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPrepare is what a forecast for 10,000 Workloads that wait takes of the loop's
// own time, once in minutes: some 20 ms.
func BenchmarkPrepare(b *testing.B) {
	l := New(nil, nil, Config{})
	for _, o := range queueOf("0") {
		l.set(o)
	}
	for i := range 10_000 {
		l.set(workloadOf(fmt.Sprintf("job-%05d", i), "1"))
	}
	l.state.Cycle(start)
	for b.Loop() {
		l.prepare(start)
	}
}

// slowAPI accepts status writes and sends their events to the inbox.
type slowAPI struct {
	client.Client
	mu       sync.Mutex
	objects  map[types.NamespacedName]*kueue.Workload
	version  int
	inbox    *inbox
	admitted chan struct{}
}

func (a *slowAPI) Status() client.SubResourceWriter { return slowStatus{api: a} }

type slowStatus struct {
	client.SubResourceWriter
	api *slowAPI
}

func (s slowStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	s.api.write()
	o.SetResourceVersion(s.api.next())
	return nil
}

func (s slowStatus) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	a := s.api
	a.write()
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	version := a.next()
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.objects[client.ObjectKeyFromObject(o)].DeepCopy()
	had := workload.IsAdmitted(w)
	patch := &kueue.Workload{}
	if err := json.Unmarshal(data, patch); err != nil {
		return err
	}
	if patch.ResourceVersion != w.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "workloads"}, w.Name, nil)
	}
	w.Status, w.ResourceVersion = patch.Status, version
	a.objects[client.ObjectKeyFromObject(w)] = w
	if !had && workload.IsAdmitted(w) {
		a.admitted <- struct{}{}
	}
	a.inbox.OnUpdate(nil, w)
	w.DeepCopyInto(o.(*kueue.Workload))
	return nil
}

func (a *slowAPI) write() { <-time.After(5 * time.Millisecond) }

func (a *slowAPI) next() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	return fmt.Sprint(a.version + 1)
}

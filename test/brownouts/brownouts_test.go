package brownouts

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	simgcp "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/kwok/cloudsim/server"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/group"
	"github.com/muster-dev/muster/provisioning/controller/request"
	"github.com/muster-dev/muster/provisioning/controller/scaledown"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/invariants/promises"
)

var (
	days = flag.Int("days", 20, "how many days are played")
	one  = flag.Int64("seed", -1, "play the day of this seed alone")
)

//go:embed clouds.yaml
var clouds []byte

const (
	dayLength = 24 * time.Hour
	// startsWithin is how soon every gang has started after the last fault, or after its request if that is later.
	startsWithin = time.Hour
	// mostVain is the share of the bill that machines may have which never serve: one in so many USD.
	mostVain = 20
	// step of the cluster and its users.
	step = 10 * time.Second
	// afterwards is how long after a fault machines may be left that a gang does not need.
	afterwards = 15 * time.Minute
	// clockError is by how much clocks may be off.
	clockError = 3 * time.Minute
)

// offset is a clock that is off.
type offset struct {
	clock.RealClock
	by time.Duration
}

func (o offset) Now() time.Time { return o.RealClock.Now().Add(o.by) }

func (o offset) Since(at time.Time) time.Duration { return o.Now().Sub(at) }

// made are the calls that launched machines on any of the days.
var made sync.Map

func TestMain(m *testing.M) {
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "simulated", "AWS_SECRET_ACCESS_KEY": "simulated", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CA_BUNDLE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		if err := os.Setenv(k, v); err != nil {
			panic(err)
		}
	}
	log.SetLogger(logr.Discard())
	debug.SetGCPercent(400) // a day lives in a few MB, and makes garbage all the time
	os.Exit(m.Run())
}

// day is one under way.
type day struct {
	*testing.T
	*cluster
	amazon *simaws.Front
	google *simgcp.Front
	began  time.Time
	gangs  []*gang
	// names of the NodeGroups.
	names []string
	// notes are what happened, by time.
	notes []string
	// served are the machines that pods of a gang ran on, and broken the NodeGroups that needed a person.
	served, broken map[string]bool
	// denied are the clouds that have refused Muster's credentials.
	denied map[v1alpha1.Provider]bool
}

// gang is a request that a user makes, and what becomes of it.
type gang struct {
	name       string
	at, runFor time.Duration
	count      int
	// only is the NodeGroup that its pods select; empty for any.
	only    string
	request *provreq.ProvisioningRequest
	started time.Time
	ended   bool
	// says is what its request says last.
	says string
}

// state of a gang's request.
func (d *day) state(ctx context.Context, g *gang) string {
	if err := d.Get(ctx, client.ObjectKeyFromObject(g.request), g.request); err != nil {
		d.Fatal(err)
	}
	c := meta.FindStatusCondition(g.request.Status.Conditions, provreq.Provisioned)
	if c == nil {
		return "no condition"
	}
	return c.Message
}

func (d *day) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf("%8s %s", time.Since(d.began).Round(time.Second), fmt.Sprintf(format, args...)))
}

func TestDay(t *testing.T) {
	if *one >= 0 {
		play(t, uint64(*one))
		return
	}
	number := *days
	if testing.Short() {
		number = 1
	}
	if number >= 5 { // fewer need not use each group
		t.Cleanup(func() {
			for _, actions := range launchCalls {
				for _, action := range actions {
					if _, ok := made.Load(action); !ok {
						t.Errorf("%s was called on none of %d days", action, number)
					}
				}
			}
		})
	}
	for seed := range uint64(number) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			play(t, seed)
		})
	}
}

// network takes requests to the simulated clouds in this process.
type network struct {
	handler http.Handler
	clock   clock.PassiveClock
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte{}
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	served := r.Clone(r.Context())
	served.Body, served.RequestURI = io.NopCloser(bytes.NewReader(body)), r.URL.RequestURI()
	reply := make(chan *http.Response, 1)
	go func() {
		recorder := httptest.NewRecorder()
		defer func() {
			if e := recover(); e != nil && !errors.Is(e.(error), http.ErrAbortHandler) {
				panic(e)
			} else if e != nil {
				close(reply)
				return
			}
			recorder.Header().Set("Date", n.clock.Now().UTC().Format(http.TimeFormat))
			reply <- recorder.Result()
		}()
		n.handler.ServeHTTP(recorder, served)
	}()
	select {
	case out, ok := <-reply:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		out.Request = r
		return out, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func play(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 1))
		config, err := server.Read(clouds)
		if err != nil {
			t.Fatal(err)
		}
		config.Seed = int64(seed)
		// The clocks of the clouds may differ from Muster's.
		theirs := offset{by: time.Duration(random.IntN(3)-1) * clockError}
		world, err := cloudsim.New(config.Config, theirs)
		if err != nil {
			t.Fatal(err)
		}
		amazon, err := simaws.New(*config.AWS, world)
		if err != nil {
			t.Fatal(err)
		}
		google, err := simgcp.New(*config.GCP, world)
		if err != nil {
			t.Fatal(err)
		}
		c, err := newCluster(world)
		if err != nil {
			t.Fatal(err)
		}
		c.checker = promises.New(expectations())
		d := &day{T: t, cluster: c, amazon: amazon, google: google, began: time.Now(), served: map[string]bool{}, broken: map[string]bool{},
			denied: map[v1alpha1.Provider]bool{}}
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		d.muster(ctx, &running, &network{world.Handler(amazon), theirs}, &network{world.Handler(google), theirs})
		for i := range 30 + random.IntN(20) {
			g := &gang{
				name: fmt.Sprint("gang-", i), at: time.Duration(random.Int64N(int64(dayLength))), count: 1 + random.IntN(6),
				runFor: time.Duration(10+random.IntN(50)) * time.Minute,
			}
			if random.IntN(2) == 0 {
				g.only = d.names[random.IntN(len(d.names))] // so that each launch method and capacity type is used
			}
			d.gangs = append(d.gangs, g)
		}
		outages := outagesOf(random, d.gangs)
		d.run(ctx, outages)
		d.judge(outages)
		if t.Failed() || *one >= 0 {
			t.Log("The day:\n" + strings.Join(d.notes, "\n"))
		}
	})
}

// muster runs the provisioner with both adapters.
func (d *day) muster(ctx context.Context, running *sync.WaitGroup, amazon, google http.RoundTripper) {
	m := model.New(clock.RealClock{}, transaction.KnownClasses)
	d.model = m
	groups := func(context.Context) ([]*v1alpha1.NodeGroup, error) { return d.nodeGroups(), nil }
	inUse := (&request.Terminator{Model: m, Live: d.Client}).InUse
	const uid = "6f1d9b1e-3c0e-4f53-9c38-6f6a7b1e0c11"
	ec2, err := aws.New(ctx, aws.Config{Region: "us-east-1", Cluster: "lab", ClusterUID: uid, Endpoint: "http://aws.lab", Groups: groups,
		Clock: clock.RealClock{}, InUse: inUse, Transport: amazon})
	if err != nil {
		d.Fatal(err)
	}
	compute, err := gcp.New(ctx, gcp.Config{Project: "lab", Cluster: "lab", ClusterUID: uid, Endpoint: "http://gcp.lab", Groups: groups,
		Clock: clock.RealClock{}, InUse: inUse, Transport: google})
	if err != nil {
		d.Fatal(err)
	}
	providers := map[v1alpha1.Provider]cloudprovider.Provider{v1alpha1.ProviderAWS: ec2, v1alpha1.ProviderGCP: compute}
	for _, p := range []cloudprovider.Discoverer{ec2, compute} {
		found, err := p.Discover(ctx)
		if err != nil || len(found.Refused) > 0 {
			d.Fatalf("%v: refused are %v", err, found.Refused)
		}
		for _, f := range found.Groups {
			g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: f.Name}, Spec: f.Spec}
			d.names = append(d.names, f.Name)
			g.Spec.IdleTimeout = &metav1.Duration{Duration: time.Minute}
			g.Spec.JoinTimeout = &metav1.Duration{Duration: 10 * time.Minute}
			if err := d.Create(ctx, g); err != nil {
				d.Fatal(err)
			}
		}
	}
	var synced sync.WaitGroup
	for _, p := range providers {
		synced.Add(1)
		running.Go(func() { _ = p.Watch(ctx, m.SetMachine, synced.Done) })
	}
	ready := func(context.Context) bool { synced.Wait(); return true }
	for _, c := range []interface{ Start(context.Context) error }{
		&request.Controller{Client: d.Client, Live: d.Client, Providers: providers, Model: m, Synced: ready, Changed: m.Changed(),
			Events: &events.FakeRecorder{}, Clock: clock.RealClock{}},
		&scaledown.Controller{Client: d.Client, Live: d.Client, Providers: providers, Model: m, Synced: ready, Changed: m.Changed(),
			Events: &events.FakeRecorder{}, Clock: clock.RealClock{}},
		&group.Controller{Client: d.Client, Live: d.Client, Model: m, Synced: ready, Changed: m.Changed(),
			Lists: cloudprovider.ListsOf(providers), Clock: clock.RealClock{}},
	} {
		running.Go(func() {
			if err := c.Start(ctx); err != nil {
				d.Error(err)
			}
		})
	}
}

// run plays the day, and what follows until all is over.
func (d *day) run(ctx context.Context, outages []outage) {
	ends := map[int]func(){}
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for now := time.Duration(0); now < dayLength+2*startsWithin; now = time.Since(d.began) {
		for i, o := range outages {
			switch {
			case now >= o.from && now < o.until && ends[i] == nil:
				d.standStill(d.began.Add(o.until))
				d.note("begins: %s", o)
				ends[i] = o.begin(d)
			case now >= o.until && ends[i] != nil:
				ends[i]()
				ends[i] = func() {}
				if now < o.until+step {
					d.note("ends: %s", o)
				}
			}
		}
		if err := d.kubelets(ctx); err != nil {
			d.Fatal(err)
		}
		for _, g := range d.gangs {
			d.follow(ctx, g, now)
		}
		d.judgeGroups()
		if now > lastOf(outages)+startsWithin && !slices.ContainsFunc(d.gangs, func(g *gang) bool { return !g.ended }) && d.alive() == 0 {
			return
		}
		<-ticker.C
	}
}

// judgeGroups notes groups that would need a person, other than for credentials that a cloud has refused.
func (d *day) judgeGroups() {
	for _, g := range d.nodeGroups() {
		for _, b := range g.Status.Backoffs {
			if b.Class == v1alpha1.Auth && d.denied[g.Spec.Provider] {
				continue
			}
			if nodegroups.NeedsPerson(&b) && !d.broken[g.Name] {
				d.broken[g.Name] = true
				d.note("NodeGroup %s needs a person", g.Name)
				d.Errorf("NodeGroup %s needs a person: %s", g.Name, b.Message)
			}
		}
	}
}

// alive machines.
func (d *day) alive() (n int) {
	for _, in := range d.world.Instances(true) {
		if in.Phase != cloudsim.Terminated {
			n++
		}
	}
	return n
}

// follow a gang: its user makes the request when it is time; its pods come once it is Provisioned, run, and end.
func (d *day) follow(ctx context.Context, g *gang, now time.Duration) {
	switch {
	case g.ended || now < g.at:
	case g.request == nil:
		t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: g.name}}
		t.Template.Spec = g.podSpec()
		g.request = &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: g.name}}
		g.request.Spec = provreq.ProvisioningRequestSpec{ProvisioningClassName: transaction.ClassAtomicScaleUp,
			PodSets: []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: g.name}, Count: int32(g.count)}}}
		for _, o := range []client.Object{t, g.request} {
			if err := d.Create(ctx, o); err != nil {
				d.Fatal(err)
			}
		}
		d.note("%s of %d is requested%s", g.name, g.count, on(g.only))
	case g.started.IsZero():
		if says := d.state(ctx, g); says != g.says {
			g.says = says
			d.note("%s: %s", g.name, says)
		}
		d.start(ctx, g)
	case time.Since(g.started) >= g.runFor:
		d.end(ctx, g)
	}
}

// on names the NodeGroup that a gang is bound to.
func on(group string) string {
	if group == "" {
		return ""
	}
	return " on " + group
}

func (g *gang) podSpec() corev1.PodSpec {
	amount := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("8")}
	out := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main",
		Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount}}}}
	if g.only != "" {
		out.NodeSelector = map[string]string{v1alpha1.NodeGroupLabel: g.only}
	}
	return out
}

// start binds the pods of a gang whose request is Provisioned.
func (d *day) start(ctx context.Context, g *gang) {
	c := meta.FindStatusCondition(g.request.Status.Conditions, provreq.Provisioned)
	if c == nil || c.Status != metav1.ConditionTrue {
		if f := meta.FindStatusCondition(g.request.Status.Conditions, provreq.Failed); f != nil && f.Status == metav1.ConditionTrue {
			d.Errorf("%s failed: %s", g.name, f.Message)
			g.ended = true
		}
		return
	}
	var nodes []string
	for n := range d.model.Snapshot(time.Now()).Nodes.BookedBy(g.request.UID) {
		if !n.Ready {
			d.Errorf("%s is Provisioned with node %s, which is not Ready", g.name, n.Name)
		}
		nodes = append(nodes, n.Name)
	}
	e, _ := d.model.Request(g.request.UID)
	for n := range d.model.Snapshot(time.Now()).Nodes.LaunchedBy(e.Gang.Launch) {
		if n.BookingOf(g.request.UID) == nil {
			nodes = append(nodes, n.Name)
		}
	}
	if len(nodes) < g.count {
		return // they are opened once pods come
	}
	g.started = time.Now()
	d.note("%s starts after %s", g.name, (time.Since(d.began) - g.at).Round(time.Second))
	for i, node := range nodes[:g.count] {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("%s-%d", g.name, i), Annotations: map[string]string{
			provreq.ProvisioningRequestPodAnnotationKey: g.name, provreq.ProvisioningClassPodAnnotationKey: transaction.ClassAtomicScaleUp}}}
		p.Spec = g.podSpec()
		p.Spec.NodeName = node
		p.Status.Phase = corev1.PodRunning
		if err := d.Create(ctx, p); err != nil {
			d.Fatal(err)
		}
		d.served[strings.TrimPrefix(node, "node-")] = true
	}
}

// end deletes the pods of a gang and its request.
func (d *day) end(ctx context.Context, g *gang) {
	pods := &corev1.PodList{}
	if err := d.List(ctx, pods, client.InNamespace("team")); err != nil {
		d.Fatal(err)
	}
	came := 0
	for i := range pods.Items {
		if pods.Items[i].Annotations[provreq.ProvisioningRequestPodAnnotationKey] == g.name {
			came++
			if err := d.Delete(ctx, &pods.Items[i]); err != nil {
				d.Fatal(err)
			}
		}
	}
	if came < g.count {
		d.Errorf("%s has lost %d of its %d pods while it ran: their machines were terminated", g.name, g.count-came, g.count)
	}
	if err := client.IgnoreNotFound(d.Delete(ctx, g.request)); err != nil {
		d.Fatal(err)
	}
	g.ended = true
	d.note("%s ends", g.name)
}

// expectations are the bounds of the promises on such a day. Lists of the clouds lag and their calls take a while; while a fault lasts no
// bound counts, see run.
func expectations() promises.Config {
	c := promises.DefaultConfig()
	c.RollbackBound, c.OrphanBound, c.IdleBound = afterwards, afterwards, afterwards
	c.ExplainBound = time.Minute
	c.Confirm = 0 // the order of events is known
	return c
}

// judge the day once it is over.
func (d *day) judge(outages []outage) {
	d.checker.Finish(time.Now())
	for _, v := range d.checker.Violations() {
		d.Errorf("%s", v)
	}
	for _, check := range []promises.Check{promises.BoundPods, promises.Provisions, promises.Bookings, promises.Consumed,
		promises.PendingRequests} {
		if d.checker.Stats().Judged[check] == 0 {
			d.Errorf("%s had nothing to judge", check)
		}
	}
	for _, g := range d.gangs {
		late := g.started.Sub(d.began) - max(g.at, lastOf(outages)) - startsWithin
		switch {
		case g.started.IsZero():
			d.Errorf("%s of %d has not started: %+v", g.name, g.count, g.request.Status.Conditions)
		case late > 0:
			d.Errorf("%s of %d started %s too late", g.name, g.count, late.Round(time.Second))
		}
	}
	if n := d.alive(); n > 0 {
		d.Errorf("%d machines are left", n)
	}
	var served, vain int64
	for _, line := range d.world.Bill() {
		if d.served[line.ID] {
			served += line.MicroUSD
		} else {
			vain += line.MicroUSD
		}
	}
	if vain > served/mostVain {
		d.Errorf("%.2f USD were paid for machines that never served, beside %.2f USD for others", float64(vain)/1e6, float64(served)/1e6)
	}
	for cloud, actions := range launchCalls {
		for _, action := range actions {
			if n := d.world.Calls(cloud)[action]; n > 0 {
				made.Store(action, true)
				d.note("%d calls of %s", n, action)
			}
		}
	}
	d.Logf("%d gangs; %.2f USD for machines that served, %.2f USD for those that did not", len(d.gangs), float64(served)/1e6,
		float64(vain)/1e6)
}

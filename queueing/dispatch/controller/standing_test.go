package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
)

// TestWhatKueueHasTurnedOffIsReported: the condition of an object that needs one of Kueue's alpha gates, ClusterProfiles or automated
// quota, reports it.
func TestWhatKueueHasTurnedOffIsReported(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	profile := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
	profile.Spec.ClusterSource.ClusterProfileRef = &kueue.ClusterProfileReference{Name: "fleet-west"}
	profile.Status.Conditions = []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: metav1.ConditionTrue}}
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	config.Spec.Clusters = []string{"west"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(profile, config).Build()
	_, err := (&workers{manager: c, writer: c}).kubeconfig(t.Context(), "west")
	var u *unusable
	if !errors.As(err, &u) || u.reason != "MultiKueueClusterProfileFeatureDisabled" ||
		!strings.Contains(err.Error(), `clusterProfileRef is "fleet-west"`) {
		t.Errorf("a MultiKueueCluster with a ClusterProfile says %v", err)
	}
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}
	ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "MultiKueueConfig", Name: "all"}
	for _, mode := range []kueue.MultiKueueConfigQuotaManagementMode{kueue.QuotaManagementManual, kueue.QuotaManagementAutomated} {
		told := mode == kueue.QuotaManagementAutomated
		config.Spec.QuotaManagement = &mode
		if err := c.Update(t.Context(), config, &client.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		condition, err := (&checks{c}).judge(t.Context(), ac)
		if err != nil || condition.Status != metav1.ConditionTrue ||
			strings.Contains(condition.Message, "is Automated, which has no effect") != told {
			t.Errorf("with %s the check says %+v: %v", mode, condition, err)
		}
	}
}

// TestAKindThatAWorkerLacksIsNoReasonToLoseIt: the rights of a new version may arrive in a worker after the manager was upgraded, and
// CRDs may be installed later.
func TestAKindThatAWorkerLacksIsNoReasonToLoseIt(t *testing.T) {
	for name, c := range map[string]struct {
		why       error
		forbidden int
		waits     string
	}{
		"it may not be read": {apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right to list")), 1,
			"worker-0 lacks rights (apply there what muster dispatcher manifests --worker prints): pods is forbidden: no right to list"},
		"it is not installed": {&apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Pod"}}, 0, "worker-0 lacks the kind Pod of v1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 1)
			connection, there := s.copies.workers.byName[workerName(0)].connection, false
			kube := interceptor.NewClient(s.workers[0].(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, kube client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					if l.GetObjectKind().GroupVersionKind().Kind == "PodList" && !there {
						return c.why
					}
					return kube.List(ctx, l, opts...)
				},
			})
			jobs, forbidden, err := served(t.Context(), kube, s.copies.workers.kinds)
			if err != nil || len(jobs) != len(s.copies.workers.kinds)-1 || len(forbidden) != c.forbidden {
				t.Fatalf("%d kinds are served, and forbidden are %v: %v", len(jobs), forbidden, err)
			}
			connection.client, connection.jobs, connection.forbidden, connection.judged = kube, jobs, forbidden, s.clock.Now()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "alone"}}
			s.queued("pod-alone", pod)
			s.dispatch("pod-alone")
			w := &kueue.Workload{}
			if err := s.manager.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "pod-alone"}, w); err != nil {
				t.Fatal(err)
			}
			record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
			if err != nil || !strings.Contains(record.Waits, c.waits) {
				t.Errorf("its record is %+v: %v", record, err)
			}
			for _, step := range []struct {
				there, want bool
				after       time.Duration
			}{{false, false, lacksAgain}, {true, false, 0}, {true, true, lacksAgain}} {
				there = step.there
				s.clock.Step(step.after)
				if got := s.copies.workers.hasMoreKinds(t.Context(), connection); got != step.want {
					t.Errorf("there %t, after %s: it is connected to again: %t", step.there, step.after, got)
				}
			}
		})
	}
}

// TestAJobIsNotTakenForGoneWhereItMayNotBeRead any more, because permissions were revoked while it ran.
func TestAJobIsNotTakenForGoneWhereItMayNotBeRead(t *testing.T) {
	s := newShop(t, 2)
	s.queued("pod-alone", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "alone"}})
	at := s.admitted("pod-alone")
	connection, why := s.copies.workers.byName[workerName(at)].connection, errors.New("no right to list")
	connection.jobs, connection.forbidden = nil, map[schema.GroupKind]error{{Kind: "Pod"}: why}
	request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team-a", Name: "pod-alone"}}
	s.clock.Step(showEvery)
	if _, err := s.copies.Reconcile(t.Context(), request); !errors.Is(err, why) {
		t.Errorf("while it runs: %v", err)
	}
	s.status(s.manager, "pod-alone", func(w *kueue.Workload) {
		is(w, kueue.WorkloadEvicted)
		w.Status.ClusterName = nil
	})
	if _, err := s.copies.Reconcile(t.Context(), request); !errors.Is(err, why) || s.copyIn(at, "pod-alone") == nil {
		t.Errorf("after its eviction: %v; its copy is there: %t", err, s.copyIn(at, "pod-alone") != nil)
	}
}

// TestAnAccountThatMayDoEverythingIsWarnedOf: the kubeconfig of a worker's administrator is one.
func TestAnAccountThatMayDoEverythingIsWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		allowed bool
		err     error
		want    string
	}{
		"a narrow one":              {false, nil, "Connected"},
		"cluster-admin":             {true, nil, "Connected; the account in its kubeconfig may do everything in the cluster, Secrets included"},
		"one that may not even ask": {false, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")), "Connected"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 1)
			kube := interceptor.NewClient(s.workers[0].(client.WithWatch), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					ask := o.(*authorizationv1.SelfSubjectAccessReview)
					of := ask.Spec.ResourceAttributes
					ask.Status.Allowed = c.allowed && of.Verb == "*" && of.Group == "*" && of.Resource == "*"
					return c.err
				},
			})
			all, err := mayAll(t.Context(), kube)
			if err != nil || all != c.allowed {
				t.Fatalf("it may do everything: %t, %v", all, err)
			}
			worker := s.copies.workers.byName[workerName(0)]
			worker.connection.mayAll = all
			mkc := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: workerName(0), Generation: 3}}
			if err := s.manager.Create(t.Context(), mkc); err != nil {
				t.Fatal(err)
			}
			s.copies.workers.writer = s.manager
			s.copies.workers.report(t.Context(), worker, nil)
			if err := s.manager.Get(t.Context(), client.ObjectKeyFromObject(mkc), mkc); err != nil {
				t.Fatal(err)
			}
			active := apimeta.FindStatusCondition(mkc.Status.Conditions, kueue.MultiKueueClusterActive)
			if active == nil || active.ObservedGeneration != 3 || active.Status != metav1.ConditionTrue ||
				!strings.HasPrefix(active.Message, c.want) ||
				strings.Contains(active.Message, "everything") != c.allowed {
				t.Errorf("its condition is %+v", active)
			}
		})
	}
}

// TestACheckIsJudgedAsItIsNow: its condition has the newest observedGeneration (Kueue 0.20, 14838).
func TestACheckIsJudgedAsItIsNow(t *testing.T) {
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Generation: 7}}
	got, err := (&checks{}).judge(t.Context(), ac)
	if err != nil || got.ObservedGeneration != 7 || got.Status != metav1.ConditionFalse {
		t.Errorf("it has the condition %+v: %v", got, err)
	}
}

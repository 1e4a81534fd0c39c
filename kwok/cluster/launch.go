package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	// startTimeout is how long the start may make no progress unless Config says otherwise: on a slow machine the disk must first read the
	// program.
	startTimeout = 2 * time.Minute

	// deathsAtStart is how often a component may die before it serves for the first time, until the start is given up.
	deathsAtStart = 3

	// tailLines is how much of a log is shown when its component failed.
	tailLines = 15
)

// launch starts everything in the order of its needs, and what does not need each other at the same time.
func (c *Cluster) launch(ctx context.Context) error {
	ctx, cancel := c.progress.watch(ctx, cmp.Or(c.config.StartTimeout, startTimeout))
	defer cancel()
	for _, name := range []string{Etcd, APIServer} {
		if err := c.bringUp(ctx, name); err != nil {
			return err
		}
	}
	if c.plan.runs(APIServer) {
		if err := c.launchOnAPIServer(ctx); err != nil {
			return err
		}
	}
	c.stateMu.Lock()
	c.state.Ready = true
	c.stateMu.Unlock()
	c.saveState()
	c.progress.step("ready")
	return nil
}

func (c *Cluster) launchOnAPIServer(ctx context.Context) error {
	if err := c.copyKubeconfig(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.rest)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.bringUp(ctx, Scheduler) })
	group.Go(func() error {
		// These components work on objects whose kinds are installed here. kube-controller-manager would start without them, but its
		// garbage collector discovers new kinds only every 30 s, and until then nodes outlive their machines.
		if err := c.install(ctx); err != nil {
			return err
		}
		group.Go(func() error {
			if err := c.bringUp(ctx, ControllerManager); err != nil {
				return err
			}
			return c.awaitDefaultServiceAccount(ctx, client)
		})
		if c.config.InForce != nil && c.config.Manifests != nil {
			group.Go(func() error { return c.config.InForce(ctx, c.rest) })
		}
		group.Go(func() error { return c.bringUp(ctx, Kwok) })
		for _, operator := range c.config.Operators {
			group.Go(func() error { return c.startComponent(ctx, operator.Name) })
		}
		group.Go(func() error { return c.bringUpAsAccount(ctx, client, Dashboard) })
		if err := c.bringUp(ctx, Clouds); err != nil {
			return err
		}
		if err := c.bringUpAsAccount(ctx, client, Muster); err != nil {
			return err
		}
		if err := c.bringUpAsAccount(ctx, client, Standby); err != nil {
			return err
		}
		return c.bringUpAsAccount(ctx, client, Dispatcher)
	})
	return group.Wait()
}

// bringUp starts a component, if it is selected, and returns when it serves.
func (c *Cluster) bringUp(ctx context.Context, name string) error {
	if !c.plan.runs(name) {
		return nil
	}
	return c.startComponent(ctx, name)
}

func (c *Cluster) startComponent(ctx context.Context, name string) error {
	p, err := c.process(name)
	if err != nil {
		return err
	}
	began := time.Now()
	c.startedMu.Lock()
	c.started = append(c.started, p)
	c.startedMu.Unlock()
	go p.run()
	if err := c.awaitReady(ctx, p); err != nil {
		return err
	}
	c.progress.step("%s serves, %.1fs after its start", name, time.Since(began).Seconds())
	return nil
}

// awaitReady returns when the component serves; or, with the end of its log, when it has died too often or ctx is over.
func (c *Cluster) awaitReady(ctx context.Context, p *process) error {
	probe := c.plan.component(p.name).probe(c.plan)
	deathsBefore := p.state().Restarts
	for {
		state := p.state()
		if deaths := state.Restarts - deathsBefore; deaths >= deathsAtStart {
			return c.componentError(p, fmt.Errorf("%s died %d times at its start (%s)", p.name, deaths, state.LastExit))
		}
		var failure error
		if state.PID == 0 {
			failure = ErrNoProcess
		} else if failure = probe.Check(ctx); failure == nil {
			return nil
		}
		select {
		case <-time.After(pollPeriod):
		case <-ctx.Done():
			err := fmt.Errorf("waiting for %s: %w", p.name, context.Cause(ctx))
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStalled) {
				return c.componentError(p, fmt.Errorf("%w (%w)", err, failure))
			}
			return err // cancelled, or another component failed
		}
	}
}

func (c *Cluster) componentError(p *process, err error) error {
	return fmt.Errorf("%w; its log %s ends with:\n%s", err, p.log, tail(p.log, tailLines))
}

func (c *Cluster) copyKubeconfig() error {
	if c.config.Kubeconfig == "" {
		return nil
	}
	text, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the sandbox's kubeconfig: %w", err)
	}
	return writeCopy(c.config.Kubeconfig, text)
}

func writeCopy(path string, text []byte) error {
	if err := writeFile(path, text); err != nil {
		return fmt.Errorf("writing --kubeconfig (give a file you may write to): %w", err)
	}
	return nil
}

// install applies the manifests, and what the operators need.
func (c *Cluster) install(ctx context.Context) error {
	objects, err := c.manifests()
	if err != nil {
		return fmt.Errorf("reading the manifests to install: %w", err)
	}
	for _, object := range objects {
		if !c.plan.webhook || object.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		if err := callAt(object, "https://"+c.plan.address(musterWebhook)); err != nil {
			return err
		}
	}
	objects = append(objects, c.plan.objects...)
	if len(objects) == 0 {
		return nil
	}
	began := time.Now()
	if err := c.Apply(ctx, objects); err != nil {
		return err
	}
	c.progress.step("%d manifests are installed, in %.1fs", len(objects), time.Since(began).Seconds())
	return nil
}

func (c *Cluster) manifests() ([]*unstructured.Unstructured, error) {
	if c.config.Manifests == nil {
		return nil, nil
	}
	return c.config.Manifests()
}

// bringUpAsAccount starts a component with a token of its service account, and keeps that token fresh.
func (c *Cluster) bringUpAsAccount(ctx context.Context, client kubernetes.Interface, component string) error {
	if !c.plan.runs(component) {
		return nil
	}
	account, path := accounts[component], c.plan.token(component)
	life, err := renewToken(ctx, client, account, path)
	if err != nil {
		return err
	}
	c.working.Go(func() { keepToken(c.background, client, account, path, life) })
	return c.bringUp(ctx, component)
}

// awaitDefaultServiceAccount returns when pods can be made in the default namespace: until kube-controller-manager has
// made its service account, admission refuses them.
func (c *Cluster) awaitDefaultServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	if !c.plan.runs(ControllerManager) {
		return nil
	}
	err := wait.PollUntilContextCancel(ctx, pollPeriod, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the default service account: %w", err)
	}
	c.progress.step("the default service account is there")
	return nil
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/jobs"
)

// logs writes the logs of the pods of a job, line by line, while the pods run.
type logs struct {
	// open starts to follow the log of a pod. Its error is BadRequest until the container has started.
	open func(context.Context, *corev1.Pod) (io.ReadCloser, error)
	out  io.Writer
	// followed are the pods whose log has been opened, or cannot be read.
	followed map[types.UID]bool
	streams  sync.WaitGroup
}

// lines is a writer that several write lines to: each write is whole.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(text)
}

// newLogs returns logs with the caller's rights.
func (o *options) newLogs(out io.Writer) (*logs, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	pods, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster: %w", err)
	}
	return &logs{out: out, followed: map[types.UID]bool{}, open: func(ctx context.Context, pod *corev1.Pod) (io.ReadCloser, error) {
		// What is added to a pod, such as a proxy, comes after its own containers.
		options := &corev1.PodLogOptions{Follow: true, Container: pod.Spec.Containers[0].Name}
		return pods.Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	}}, nil
}

// follow starts to follow the pods of a job that have started since it was called last.
func (l *logs) follow(ctx context.Context, s *subject) error {
	// The Job controller labels the pods of a Job, and a start those of other kinds.
	for _, label := range []string{batchv1.ControllerUidLabel, jobs.JobUIDLabel} {
		list := &corev1.PodList{}
		err := s.kube.List(ctx, list, client.InNamespace(s.object.GetNamespace()), client.MatchingLabels{label: string(s.object.GetUID())})
		if err != nil {
			return fmt.Errorf("listing the pods of %s, which --logs follows: %w", s.object.GetName(), err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if l.followed[pod.UID] || pod.Status.Phase == corev1.PodPending {
				continue
			}
			stream, err := l.open(ctx, pod)
			if apierrors.IsBadRequest(err) {
				continue
			}
			l.followed[pod.UID] = true
			if err != nil {
				fmt.Fprintf(l.out, "The log of pod %s cannot be read: %s\n", pod.Name, err)
				continue
			}
			prefix := ""
			if s.line.Pods > 1 {
				prefix = "[" + pod.Name + "] "
			}
			l.streams.Go(func() { copyLines(l.out, stream, prefix) })
		}
	}
	return nil
}

// copyLines copies a log to its end, each line after the prefix.
func copyLines(out io.Writer, stream io.ReadCloser, prefix string) {
	defer stream.Close()
	in := bufio.NewReader(stream)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			if err != nil {
				line += "\n"
			}
			fmt.Fprint(out, prefix+line)
		}
		if err != nil {
			return
		}
	}
}

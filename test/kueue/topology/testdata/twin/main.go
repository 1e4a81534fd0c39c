// Command twin reads questions as lines of JSON, and prints where Kueue's topology-aware scheduling places the pods.
package main

import (
	"bufio"
	"fmt"
	"os"

	"sigs.k8s.io/kueue/pkg/cache/scheduler"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		answer, err := scheduler.Twin(in.Bytes())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Printf("%s\n", answer)
	}
}

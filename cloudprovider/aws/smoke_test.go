package aws

import "os"

// realCloud says that the tests may also ask AWS itself, without effect.
func realCloud() bool { return os.Getenv("MUSTER_TEST_AWS_REGION") != "" }

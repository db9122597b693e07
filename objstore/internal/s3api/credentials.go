package s3api

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/varvelog/varve/objstore"
)

// Credentials are the credentials of the AWS chain, cached by the SDK until shortly before they expire. Errors are
// classified, so that a store that cannot be asked is told from credentials that are not there.
type Credentials struct {
	below aws.CredentialsProvider
}

// Retrieve implements aws.CredentialsProvider.
func (c *Credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if c.below == nil {
		return aws.Credentials{}, fmt.Errorf("no credentials configured: %w", objstore.ErrDenied)
	}
	v, err := c.below.Retrieve(ctx)
	if err == nil {
		return v, nil
	}
	return v, &credentialsError{class: credentialsClass(ctx, err), err: err}
}

// Invalidate makes the next Retrieve fetch anew, whatever expiry was announced.
func (c *Credentials) Invalidate() {
	if cache, ok := c.below.(*aws.CredentialsCache); ok {
		cache.Invalidate()
	}
}

type credentialsError struct {
	class error
	err   error
}

func (e *credentialsError) Error() string {
	return "get credentials from the AWS chain (environment, profile, web identity, container, instance): " + Redact(e.err.Error())
}

func (e *credentialsError) Unwrap() []error {
	if e.class == nil {
		return []error{e.err}
	}
	return []error{e.class, e.err}
}

func credentialsClass(ctx context.Context, err error) error {
	var answer *awshttp.ResponseError
	switch {
	case ctx.Err() != nil:
		return objstore.ErrUnavailable
	case untrusted(err):
		return nil
	case errors.As(err, &answer) && answer.HTTPStatusCode()/100 == 4 && answer.HTTPStatusCode() != 429:
		return objstore.ErrDenied
	}
	return objstore.ErrUnavailable
}

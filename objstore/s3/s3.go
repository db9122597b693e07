// Package s3 is an object store spoken to by aws-sdk-go-v2, the default client.
//
// Bodies go up unsigned, under a CRC-32C that was computed beforehand: the store refuses what does not match it, and the
// client reads each byte once. The SDK's own repetition is off, package retry does that for all stores alike; its
// correction of a wrong local clock is on.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/internal/s3api"
)

// Config addresses a bucket of an S3 store.
type Config = s3api.Config

// New returns the bucket that c addresses, with credentials from the AWS chain. It makes no requests.
func New(ctx context.Context, c Config) (*s3api.Bucket, error) {
	l, err := s3api.Load(ctx, c)
	if err != nil {
		return nil, err
	}
	client := s3.NewFromConfig(l.AWS, func(o *s3.Options) {
		o.HTTPClient = l.HTTP
		o.Credentials = l.Credentials
		o.Retryer = aws.NopRetryer{}
		o.UsePathStyle = l.PathStyle
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
		if l.Endpoint != "" {
			o.BaseEndpoint = aws.String(l.Endpoint)
		}
	})
	return s3api.NewBucket(l, &api{client: client, bucket: aws.String(l.Bucket)}), nil
}

type api struct {
	client *s3.Client
	bucket *string
}

// unsigned leaves the body out of the signature; its CRC-32C is in a signed header.
var unsigned = s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)

func header(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func create(cond objstore.Cond) *string {
	if cond.IfNoneMatch {
		return aws.String("*")
	}
	return nil
}

func (a *api) Put(ctx context.Context, key string, body *io.SectionReader, crc32c string, cond objstore.Cond) (string, error) {
	out, err := a.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: a.bucket, Key: &key, Body: body, ContentLength: aws.Int64(body.Size()),
		ContentType:    aws.String("application/octet-stream"),
		ChecksumCRC32C: &crc32c, IfNoneMatch: create(cond), IfMatch: header(cond.IfMatch),
	}, unsigned)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

func (a *api) Get(ctx context.Context, key, byteRange string) (io.ReadCloser, error) {
	out, err := a.client.GetObject(ctx, &s3.GetObjectInput{Bucket: a.bucket, Key: &key, Range: header(byteRange)})
	if err != nil {
		return nil, err
	}
	return out.Body, nil
}

func (a *api) Head(ctx context.Context, key string) (objstore.Info, error) {
	out, err := a.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: a.bucket, Key: &key})
	if err != nil {
		return objstore.Info{}, err
	}
	return objstore.Info{Size: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag), Modified: aws.ToTime(out.LastModified)}, nil
}

func (a *api) ListPage(ctx context.Context, prefix, after, token string, max int) ([]objstore.Info, string, error) {
	out, err := a.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: a.bucket, Prefix: &prefix, StartAfter: header(after), ContinuationToken: header(token), MaxKeys: aws.Int32(int32(max)),
	})
	if err != nil {
		return nil, "", err
	}
	page := make([]objstore.Info, 0, len(out.Contents))
	for _, o := range out.Contents {
		page = append(page, objstore.Info{
			Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ETag: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified),
		})
	}
	if !aws.ToBool(out.IsTruncated) {
		return page, "", nil
	}
	if aws.ToString(out.NextContinuationToken) == "" {
		return nil, "", errors.New("truncated listing without a continuation token")
	}
	return page, *out.NextContinuationToken, nil
}

func (a *api) Delete(ctx context.Context, key string) error {
	_, err := a.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: a.bucket, Key: &key})
	return err
}

func (a *api) DeleteMany(ctx context.Context, keys []string) error {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	out, err := a.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: a.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	})
	if err != nil {
		return err
	}
	for _, e := range out.Errors {
		if code := aws.ToString(e.Code); code != "NoSuchKey" {
			return &smithy.GenericAPIError{Code: code, Message: fmt.Sprintf("%s: %s", aws.ToString(e.Key), aws.ToString(e.Message))}
		}
	}
	return nil
}

func (a *api) CreateUpload(ctx context.Context, key string) (string, error) {
	out, err := a.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: a.bucket, Key: &key, ContentType: aws.String("application/octet-stream"),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.UploadId), nil
}

func (a *api) UploadPart(ctx context.Context, u s3api.Upload, part int32, body *io.SectionReader, crc32c string) (string, error) {
	out, err := a.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: a.bucket, Key: &u.Key, UploadId: &u.ID, PartNumber: &part, Body: body, ContentLength: aws.Int64(body.Size()),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, ChecksumCRC32C: &crc32c,
	}, unsigned)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

func (a *api) CompleteUpload(ctx context.Context, u s3api.Upload, parts []s3api.Part, cond objstore.Cond) (string, error) {
	done := make([]types.CompletedPart, len(parts))
	for i := range parts {
		done[i] = types.CompletedPart{PartNumber: &parts[i].Number, ETag: &parts[i].ETag, ChecksumCRC32C: &parts[i].CRC32C}
	}
	out, err := a.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: a.bucket, Key: &u.Key, UploadId: &u.ID, MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
		IfNoneMatch: create(cond), IfMatch: header(cond.IfMatch),
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

func (a *api) AbortUpload(ctx context.Context, u s3api.Upload) error {
	_, err := a.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: a.bucket, Key: &u.Key, UploadId: &u.ID})
	return err
}

func (a *api) ListUploads(ctx context.Context, after s3api.Upload) ([]s3api.Upload, s3api.Upload, bool, error) {
	out, err := a.client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{
		Bucket: a.bucket, KeyMarker: header(after.Key), UploadIdMarker: header(after.ID),
	})
	if err != nil {
		return nil, after, false, err
	}
	page := make([]s3api.Upload, 0, len(out.Uploads))
	for _, u := range out.Uploads {
		page = append(page, s3api.Upload{Key: aws.ToString(u.Key), ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated)})
	}
	next := s3api.Upload{Key: aws.ToString(out.NextKeyMarker), ID: aws.ToString(out.NextUploadIdMarker)}
	more := aws.ToBool(out.IsTruncated) && next != s3api.Upload{} && next != after
	return page, next, more, nil
}

// Explain takes an SDK error apart.
func (a *api) Explain(err error) s3api.Failure {
	f := s3api.Failure{Err: err}
	var apiErr smithy.APIError
	if errors.As(err, &apiErr) {
		f.Code = apiErr.ErrorCode()
	}
	if f.Code == "UnknownError" {
		f.Code = "" // the SDK's word for an answer without a code
	}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		f.Status = answer.HTTPStatusCode()
	}
	return f
}

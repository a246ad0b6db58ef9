package auth

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// InProcess returns a client that calls the methods of server directly, through the same door as callers from outside:
// the role is checked by the same table, and an attempt without it is recorded. Who calls is the identity in the context
// of the call ([access.With]).
//
// Nothing goes over a network or is serialised. An error is what the method returned, of a kind of package rules, and may
// hold what is not for everybody's eyes: see package rpcstatus for what callers from outside get to see of it. Call
// options mean nothing. Methods that stream are refused.
func (a *Authenticator) InProcess(server adminpb.AdminServiceServer) adminpb.AdminServiceClient {
	c := &inProcess{server: server, door: a.known, methods: map[string]grpc.MethodHandler{}}
	for _, m := range adminpb.AdminService_ServiceDesc.Methods {
		c.methods["/"+adminpb.AdminService_ServiceDesc.ServiceName+"/"+m.MethodName] = m.Handler
	}
	return adminpb.NewAdminServiceClient(c)
}

// inProcess is a connection to a server that is here.
type inProcess struct {
	server  adminpb.AdminServiceServer
	door    grpc.UnaryServerInterceptor
	methods map[string]grpc.MethodHandler // by full name
}

// Invoke is part of grpc.ClientConnInterface.
func (c *inProcess) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	call, ok := c.methods[method]
	if !ok {
		return fmt.Errorf("%w: there is no method %s", rules.ErrNotFound, method)
	}
	answer, err := call(c.server, ctx, func(req any) error { return hand(req, args) }, c.door)
	if err != nil {
		return err
	}
	return hand(reply, answer)
}

// NewStream is part of grpc.ClientConnInterface.
func (c *inProcess) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("%w: %s is a stream, and in process there are none", rules.ErrInvalid, method)
}

// hand gives an empty message the fields of another one of its type. What the fields refer to has two owners then: the
// one who handed it over forgets it.
func hand(to, from any) error {
	dst, ok := to.(proto.Message)
	src, isMessage := from.(proto.Message)
	if !ok || !isMessage {
		return fmt.Errorf("hand a %T over as a %T: these are no messages", from, to)
	}
	src.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		dst.ProtoReflect().Set(field, value)
		return true
	})
	return nil
}

// known is the door for calls whose caller is known already.
func (a *Authenticator) known(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	who := access.From(ctx)
	if who.Role == "" {
		return nil, unauthenticated(missing, "the call says nothing about who makes it")
	}
	if err := mayCall(who, info.FullMethod); err != nil {
		return nil, a.record(ctx, who, info.FullMethod, req, err)
	}
	return handle(ctx, req)
}

#pragma once
// Replaces Gloo's transport/device.h. The engine passes the Device from ProcessGroupGloo::createDeviceForHostname()
// back unopened.
namespace gloo::transport {
class Device;
}

#pragma once
// Stands in for Gloo's transport/device.h: what ProcessGroupGloo::createDeviceForHostname() gives is handed back
// unopened.
namespace gloo::transport {
class Device;
}
